"""Goals, the versions that followed: ``goal`` became ``objective``, and an ``owner`` is required.

    goal.set         the task's objective and its owner
    step.completed   one more step done

Events of version 1 and 2 are lifted by upcasters. ``GOALS`` changes the read model under its name, ``OBJECTIVES``
renames it, ``TITLES`` and ``PROGRESS`` split it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, Text

from events.event import Recorded
from events.registry import EVENT_TYPES, EventType
from events.types.base import NonEmpty, Payload
from projections.projection import Change, Projection, Put, RowRef, Rows, read_model_table
from projections.registry import PROJECTIONS as SHIPPED


class GoalSet(Payload, frozen=True, kw_only=True):
    """What a task is for, and who answers for it."""

    objective: NonEmpty
    owner: NonEmpty


def goal_to_objective(data: dict[str, Any]) -> dict[str, Any]:
    """From version 1; what version 1 could not fold was a goal that nobody knew."""
    goal = data.pop("goal")
    return data | {"objective": "unknown" if goal == "?" else goal}


def nobody_owns(data: dict[str, Any]) -> dict[str, Any]:
    """From version 2."""
    return {"owner": "nobody"} | data


TYPE = EventType("goal.set", GoalSet, "task", version=3, upcast={1: goal_to_objective, 2: nobody_owns})
HANDLES = frozenset({"goal.set", "step.completed"})


def objective(name: str, was: str) -> Any:
    """A table of objectives."""
    return read_model_table(
        MetaData(), name,
        Column("objective", Text, info={"was": "goal"}), Column("owner", Text, nullable=False),
        Column("done", BigInteger, nullable=False),
        was=was,
    )  # fmt: skip


def fold(table: str, recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """The one row of the task."""
    row = dict(rows.get(table) or {"objective": None, "owner": "nobody", "done": 0})
    if isinstance(recorded.payload, GoalSet):
        row |= {"objective": recorded.payload.objective, "owner": recorded.payload.owner}
    else:
        row["done"] += 1
    return [Put(table, row)]


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Into ``goals``."""
    return fold("goals", recorded, rows)


def apply_renamed(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Into ``objectives``."""
    return fold("objectives", recorded, rows)


def apply_title(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Into ``titles``."""
    if isinstance(recorded.payload, GoalSet):
        yield Put("titles", {"objective": recorded.payload.objective})


def apply_progress(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Into ``progress``."""
    row = rows.get("progress") or {"done": 0}
    yield Put("progress", {"done": row["done"] + 1})


def _names(table: str) -> Any:
    return lambda recorded: [RowRef(table)]


GOALS = Projection("goals", 2, (objective("goals", ""),), HANDLES, apply, _names("goals"))
OBJECTIVES = Projection(
    "objectives", 1, (objective("objectives", "goals"),), HANDLES, apply_renamed, _names("objectives"),
    replaces=("goals",),
)  # fmt: skip
TITLES = Projection(
    "titles", 1,
    (read_model_table(MetaData(), "titles", Column("objective", Text, info={"was": "goal"}), was="goals"),),
    frozenset({"goal.set"}), apply_title, _names("titles"), replaces=("goals",),
)  # fmt: skip
PROGRESS = Projection(
    "progress", 1, (read_model_table(MetaData(), "progress", Column("done", BigInteger), was="goals"),),
    frozenset({"step.completed"}), apply_progress, _names("progress"), replaces=("goals",),
)  # fmt: skip
PROJECTIONS = {**SHIPPED, "goals": GOALS}


@contextmanager
def knowing(*types: EventType) -> Iterator[None]:
    """Run with event types of one version, as a process of that version does."""
    known: dict[str, EventType] = EVENT_TYPES  # type: ignore[assignment]
    before: Mapping[str, EventType] = dict(known)
    known.update({one.name: one for one in types})
    try:
        yield
    finally:
        known.clear()
        known.update(before)
