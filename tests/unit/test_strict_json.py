"""Reading and judging JSON below the door."""

from __future__ import annotations

import dataclasses
import json
from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import strict_json
from events.errors import Refused


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


Pair = namedtuple("Pair", "a b")


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("spelling", ['{"a":1.50}', '{ "a" : 1.5 }', '{"\\u0061":15e-1}'])
def test_spelling_does_not_matter(spelling: str) -> None:
    assert strict_json.loads(spelling.encode()) == {"a": 1.5}


def test_a_batch_is_read_item_by_item_when_one_is_bad() -> None:
    good, twice, deep = strict_json.loads_many(b'[{"a": 1}, {"b": 1, "b": 2}, ' + b"[" * 500 + b"]" * 500 + b"]")
    assert good == {"a": 1}
    assert isinstance(twice, strict_json.Hazard) and isinstance(deep, strict_json.Hazard)
    assert (twice.code, deep.code) == ("bad_value", "too_deep")


@pytest.mark.parametrize(
    ("text", "limit", "deeper"),
    [
        (b"[[]]", 1, True),
        (b"[[]]", 2, False),
        (b'["[[["]', 1, False),
        (b'["\\"[[["]', 1, False),
        (b"[],[],[]", 1, False),
    ],
)
def test_depth_counts_brackets_outside_text(text: bytes, limit: int, deeper: bool) -> None:
    assert strict_json.deeper_than(limit, text) is deeper


def test_depth_of_large_text_is_found_without_recursion() -> None:
    """C26: linear time and constant stack, with strings that are all escapes too."""
    assert strict_json.deeper_than(66, b"[" * 500_000)
    assert not strict_json.deeper_than(66, b'["' + b'\\"[' * 300_000 + b'"]')


def test_a_safe_value_comes_back_as_it_is() -> None:
    value = {"a": [1, None, "ü", 1e300, {"b": True}]}
    assert strict_json.sanitise(value) == (value, False)
    assert strict_json.sanitise(value)[0] is value


def test_sanitised_is_told_exactly() -> None:
    assert strict_json.sanitise({"a": (1, "x\x00")}) == ({"a": [1, "x\ufffd"]}, True)
    assert strict_json.sanitise({"a": (1, None)}) == ({"a": (1, None)}, False)


@pytest.mark.parametrize("nothing", [[], [None]])
@pytest.mark.parametrize("value", [UUID(int=1), Colour.RED, Text("t"), (1, 2)])
def test_what_python_writes_as_json_is_accepted(value: Any, nothing: list[Any]) -> None:
    """The same answer on the quick way and on the careful one (which null takes)."""
    accepted, sanitized = strict_json.sanitise([value, *nothing])
    assert not sanitized and orjson.dumps(accepted)


@pytest.mark.parametrize("nothing", [[], [None], ["\x00"]])
@pytest.mark.parametrize(
    "value",
    [datetime(2026, 3, 1, tzinfo=UTC), Point(1), Pair(1, 2), Decimal(1), b"x", {1}, {1: 2}, {Text("k"): 1}, object()],
)
def test_what_is_no_json_is_refused(value: Any, nothing: list[Any]) -> None:
    with pytest.raises(Refused, match=r"is not JSON|no text"):
        strict_json.sanitise([value, *nothing])


def test_a_place_is_named_from_the_top() -> None:
    with pytest.raises(Refused) as refusal:
        strict_json.sanitise({"a": [{"b\x00": [0, 2**64]}]})
    assert refusal.value.field == "a[0].b\ufffd[1]"


@given(st.recursive(st.floats() | st.none() | st.integers(), lambda inner: st.lists(inner)))
def test_no_nan_passes(value: Any) -> None:
    """C23: whatever stands beside it."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(Refused):
            strict_json.sanitise(value)
