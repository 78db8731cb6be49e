"""The written forms of an event, and the golden lines: what was once published is read for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import orjson
import pytest

from events import codec, door
from events.event import START, Position
from events.registry import EVENT_TYPES, EventType, decode_payload

GOLDEN = [
    orjson.loads(line) for line in (Path(__file__).parent.parent / "golden" / "events.jsonl").read_bytes().splitlines()
]


@pytest.fixture(autouse=True)
def _as_on_their_first_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the door by now asks of new events alone, it did not ask of those lines."""
    for name, kind in EVENT_TYPES.items():
        if kind.check is not None:
            monkeypatch.setitem(cast(dict[str, EventType], EVENT_TYPES), name, replace(kind, check=None))


def as_read(fields: list[str]) -> dict[bytes, bytes]:
    """Stream fields as redis-py hands them out."""
    return {name.encode(): value.encode() for name, value in zip(fields[::2], fields[1::2], strict=True)}


def test_every_type_and_version_has_a_golden_line() -> None:
    have = {(line["event"]["type"], line["event"].get("schemaversion", 1)) for line in GOLDEN}
    assert have == {(kind.name, version) for kind in EVENT_TYPES.values() for version in range(1, kind.version + 1)}


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line["event"]["id"])
def test_a_golden_line_is_read_as_on_its_first_day(line: dict[str, Any]) -> None:
    """Key and digest never change: they lay out logs and tell duplicates from conflicts."""
    event = door.admit(line["event"])
    assert (event.key, event.digest) == (line["key"], line["digest"])
    payload = decode_payload(event)
    assert isinstance(payload, EVENT_TYPES[event.type].payload)


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line["event"]["id"])
def test_every_written_form_gives_the_event_back(line: dict[str, Any]) -> None:
    event = door.admit(line["event"])
    assert codec.from_fields(as_read(codec.to_fields(event))) == event
    assert door.admit(codec.to_cloudevent(event)) == event
    assert door.admit_all(door.read_json(orjson.dumps(codec.to_cloudevent(event)))) == [event]


def test_empty_fields_are_left_out() -> None:
    event = door.admit({"id": "e1", "type": "run.heartbeat", "run": "r1", "time": "2026-03-01T10:00:00Z"})
    assert codec.to_fields(event)[::2] == ["id", "type", "time", "org", "task", "run", "key", "digest"]
    assert codec.to_cloudevent(event) == {
        "specversion": "1.0", "datacontenttype": "application/json", "id": "e1", "type": "run.heartbeat",
        "time": "2026-03-01T10:00:00Z", "org": "default", "task": "r1", "run": "r1", "data": {},
    }  # fmt: skip


def test_that_text_was_replaced_is_carried_on() -> None:
    """C22: the mark travels through every form."""
    event = door.admit({"id": "e1", "type": "run.heartbeat", "run": "r1", "data": {"detail": "\x00"}})
    assert codec.from_fields(as_read(codec.to_fields(event))).sanitized
    assert door.admit(codec.to_cloudevent(event)).sanitized


def test_positions_order_as_pairs_of_numbers() -> None:
    assert START < Position(1, 0) < Position(1, 9) < Position(1, 10) < Position(2, 0)
    assert Position.parse(b"2-10") == Position.parse(str(Position(2, 10))) == Position(2, 10)
    with pytest.raises(ValueError, match="not enough values"):
        Position.parse("7")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "not json"),
        ("data", "[]"),
        ("data", '{"a": NaN}'),
        ("time", "yesterday"),
        ("time", "2026-03-01T10:00:00"),
        ("seq", "-1"),
        ("seq", "99999999999999999999"),
        ("schemaversion", "one"),
        ("id", "a\0b"),
        ("unheard_of", "x"),
    ],
)
def test_what_no_append_can_have_written_is_no_event(field: str, value: str) -> None:
    """C22: nor may it reach a store that cannot take it."""
    event = door.admit({"id": "e1", "type": "run.heartbeat", "run": "r1", "data": {"detail": "x"}})
    fields = as_read(codec.to_fields(event))
    assert codec.from_fields(fields) == event
    with pytest.raises((TypeError, ValueError)):
        codec.from_fields(fields | {field.encode(): value.encode()})


def test_data_that_are_no_json_are_shown_as_text() -> None:
    event = door.admit({"id": "e1", "type": "run.heartbeat", "run": "r1"})
    assert codec.to_cloudevent(msgspec.structs.replace(event, data="{oops"))["data"] == "{oops"
