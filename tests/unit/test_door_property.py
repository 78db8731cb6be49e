"""Properties of the door: one answer whichever way an event comes in, and no other error than a refusal."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from events import door
from events.codec import to_cloudevent
from events.errors import Refused
from events.event import Event

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1f"), max_size=20)
HOSTILE_TEXT = st.text(st.characters() | st.sampled_from('\x00\ud800\udfff\\"u0{}[]:,'), max_size=20)


def json_values(text: st.SearchStrategy[str], numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = json_values(TEXT, NUMBERS)
HOSTILE = json_values(HOSTILE_TEXT, st.integers() | st.floats())


def event_of(arguments: Any) -> dict[str, Any]:
    return {
        "id": "e1",
        "type": "tool.called",
        "time": "2026-03-01T10:00:00Z",
        "run": "r1",
        "seq": 3,
        "data": {"call_id": "c1", "name": "n", "arguments": arguments},
    }


def ways_in(raw: dict[str, Any]) -> list[Event | Refused]:
    """One event through every way in: Python value, JSON in three spellings, flat fields."""
    texts = [json.dumps(raw), json.dumps(raw, separators=(",", ":"), sort_keys=True), json.dumps(raw, indent=2)]
    fields = {name: str(value) for name, value in raw.items()} | {"data": json.dumps(raw["data"])}
    raws = [raw, *(door.read_json(text.encode("utf-8", "surrogatepass"))[0] for text in texts)]
    return door.admit_all([*raws, door.read_fields(fields)])


@given(PLAIN)
def test_every_way_in_gives_the_same_event(arguments: Any) -> None:
    events = ways_in(event_of(arguments))
    assert all(isinstance(event, Event) for event in events)
    assert len({event.digest for event in events if isinstance(event, Event)}) == 1
    for event in events:
        assert isinstance(event, Event) and not event.sanitized
        assert _same(orjson.loads(event.data)["arguments"], arguments)


@given(HOSTILE)
def test_every_way_in_gives_the_same_answer_to_hazards(arguments: Any) -> None:
    """C22, C23, C27: replaced, or refused with the same code, whether text or Python values brought it."""
    answers = {
        (event.digest, event.data, event.sanitized) if isinstance(event, Event) else (event.code, event.field)
        for event in ways_in(event_of(arguments))
    }
    if len(answers) > 1:  # key order is the only freedom: one spelling above sorts
        events = [answer for answer in answers if len(answer) == 3]
        codes = {answer[0] for answer in answers if len(answer) == 2}
        assert len({(digest, sanitized) for digest, _, sanitized in events}) <= 1
        assert not (events and codes) and len(codes) <= 1


@given(HOSTILE)
def test_what_was_admitted_is_admitted_again_unchanged(arguments: Any) -> None:
    """What Refold hands out may be published again, and is then the same event."""
    for event in door.admit_all([event_of(arguments)]):
        if isinstance(event, Event):
            assert door.admit(to_cloudevent(event)) == event


@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,\\u0d8NaInfity-1e9. \n', max_size=60).map(str.encode))
def test_arbitrary_bytes_are_refused_never_an_error(body: bytes) -> None:
    try:
        raws = door.read_json(body)
    except Refused:
        return
    assert len(door.admit_all(raws)) == len(raws)


@given(st.dictionaries(st.sampled_from(["id", "type", "time", "seq", "schemaversion", "data", "run", "x"]), HOSTILE))
def test_arbitrary_members_are_refused_never_an_error(raw: dict[str, Any]) -> None:
    (outcome,) = door.admit_all([raw])
    assert isinstance(outcome, (Event, Refused))


@given(st.dictionaries(HOSTILE_TEXT | st.sampled_from(["id", "type", "data", "seq"]), HOSTILE_TEXT))
def test_arbitrary_fields_are_refused_never_an_error(fields: dict[str, str]) -> None:
    (outcome,) = door.admit_all([door.read_fields(fields)])
    assert isinstance(outcome, (Event, Refused))


def _same(left: Any, right: Any) -> bool:
    """Equal in type too: an integer that came back as a float is not the same."""
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, float):
        return isinstance(right, float) and math.copysign(1, left) == math.copysign(1, right) and left == right
    return type(left) is type(right) and bool(left == right)
