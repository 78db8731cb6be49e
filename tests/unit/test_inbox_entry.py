"""What the inbox accepts: flat fields, JSON, FastStream's envelope; what it cannot read is refused with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from faststream.redis.parser import BinaryMessageFormatV1

from events import door
from events.errors import Refused
from events.event import Event
from services.apps.inbox_entry import read_entry

EVENT = {"id": "e1", "type": "step.started", "run": "r1", "data": {"step": "s1"}}


def _enveloped(message: Any) -> bytes:
    return asyncio.run(
        BinaryMessageFormatV1.encode(message=message, reply_to=None, headers={"a": "b"}, correlation_id="c")
    )


def test_flat_fields() -> None:
    fields = {b"id": b"e1", b"type": b"step.started", b"run": b"r1", b"seq": b"7", b"data": b'{"step": "s1"}'}
    assert read_entry(fields) == [{**EVENT, "seq": 7}]


@pytest.mark.parametrize("raw", [orjson.dumps(EVENT), _enveloped(EVENT), _enveloped(orjson.dumps(EVENT).decode())])
def test_an_event_as_json_plain_and_enveloped(raw: bytes) -> None:
    assert read_entry({b"__data__": raw}) == [EVENT]


@pytest.mark.parametrize("raw", [orjson.dumps([EVENT, EVENT]), _enveloped([EVENT, EVENT])])
def test_a_list_of_events(raw: bytes) -> None:
    assert read_entry({b"__data__": raw}) == [EVENT, EVENT]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({b"__data__": b"{not json"}, "bad_json"),
        ({b"__data__": _enveloped("not json")}, "bad_json"),
        ({b"__data__": BinaryMessageFormatV1.IDENTITY_HEADER + b"\xff"}, "bad_json"),
        ({b"__data__": orjson.dumps(EVENT), b"id": b"e2"}, "bad_entry"),
        ({b"id": b"\xff\xfe"}, "bad_encoding"),
    ],
)
def test_unreadable_entries_are_refused(fields: dict[bytes, bytes], code: str) -> None:
    with pytest.raises(Refused) as caught:
        read_entry(fields)
    assert caught.value.code == code


def test_a_bad_data_member_is_not_taken_for_an_old_envelope() -> None:
    raw = orjson.dumps({**EVENT, "data": "text", "headers": {}})
    assert read_entry({b"__data__": raw}) == [{**EVENT, "data": "text", "headers": {}}]


def test_lone_surrogates_in_fields_are_read_as_in_json() -> None:
    """C22: as bytes of UTF-8, in a name and in the data; the door replaces them."""
    fields = {b"id": b"e1", b"type": b"step.started", b"run": b"r\xed\xa0\x80", b"data": b'{"step": "\xed\xbf\xbf"}'}
    (event,) = door.admit_all(read_entry(fields))
    assert isinstance(event, Event)
    assert (event.run, event.data, event.sanitized) == ("r\ufffd", '{"step":"\ufffd"}', True)
