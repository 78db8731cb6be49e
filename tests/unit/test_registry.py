"""Event types and upcasting, with a type of the tests' own."""

from __future__ import annotations

from typing import Any

import pytest

from events.errors import NewerVersion, Poison
from events.event import Event
from events.registry import EVENT_TYPES, EventType, decode_data, decode_payload, note_on
from events.types.base import NonEmpty, Payload


class Objective(Payload, frozen=True, kw_only=True):
    """Version 3 of a type that began with ``goal`` and later wanted an owner."""

    objective: NonEmpty
    owner: str


def rename_goal(data: dict[str, Any]) -> dict[str, Any]:
    data["objective"] = data.pop("goal")
    return data


def add_owner(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"owner": "nobody"}


def event(type_: str, **fields: Any) -> Event:
    """An event as the log holds it, whatever door it once came through."""
    return Event(id="e1", type=type_, time="2026-03-01T10:00:00Z", org="o", key="task/t", digest="", **fields)


KIND = EventType("objective.set", Objective, "task", version=3, upcast={1: rename_goal, 2: add_owner})


@pytest.mark.parametrize(
    ("version", "data"),
    [(1, '{"goal":"g"}'), (2, '{"objective":"g"}'), (3, '{"objective":"g","owner":"nobody","of the future":1}')],
)
def test_every_version_becomes_the_current_payload(version: int, data: str) -> None:
    assert decode_data(KIND, version, data) == Objective(objective="g", owner="nobody")


def test_a_newer_version_waits() -> None:
    """C12."""
    with pytest.raises(NewerVersion, match="v4 is newer than this code knows"):
        decode_data(KIND, 4, "{}")


@pytest.mark.parametrize(
    ("version", "data"), [(1, '{"aim":"g"}'), (2, '{"objective":""}'), (3, "{"), (1, "[]"), (2, "7")]
)
def test_what_does_not_fit_is_poison(version: int, data: str) -> None:
    with pytest.raises(Poison, match=f"objective.set v{version}"):
        decode_data(KIND, version, data)


def test_a_missing_field_is_not_invented() -> None:
    with pytest.raises(Poison, match="`step`"):
        decode_payload(event("step.started", data="{}"))


def test_an_unknown_type_has_no_payload() -> None:
    """C12."""
    assert decode_payload(event("step.rated", schemaversion=3)) is None


def test_every_version_can_be_reached() -> None:
    for kind in EVENT_TYPES.values():
        assert set(kind.upcast) == set(range(1, kind.version)), kind.name


def test_types_are_named_in_the_past_tense_of_their_family() -> None:
    for name in EVENT_TYPES:
        family, _, verb = name.partition(".")
        assert family.isidentifier() and (verb.endswith(("ed", "heartbeat", "written", "made", "given", "read"))), name


def test_an_unknown_type_is_noted_and_the_one_that_may_be_meant_is_named() -> None:
    assert all(note_on(name) == "" for name in EVENT_TYPES)
    assert "run.startd (is it run.started?)" in note_on("run.startd")
    assert "is it" not in note_on("payroll.posted")
    assert "is it" not in note_on("x" * 256)
