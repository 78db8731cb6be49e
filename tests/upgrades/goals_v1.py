"""Goals, version 1: what a deployment ran whose store is kept in ``tests/golden/store-0.1``. Never edited.

goal.set         the task's goal
step.completed   one more step done
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BigInteger, Column, MetaData, Text

from events.event import Recorded
from events.registry import EventType
from events.types.base import Payload
from projections.projection import Change, Projection, Put, RowRef, Rows, read_model_table
from projections.registry import PROJECTIONS as SHIPPED


class GoalSet(Payload, frozen=True, kw_only=True):
    """What a task is for."""

    goal: str


TYPE = EventType("goal.set", GoalSet, "task")
GOALS_TABLE = read_model_table(MetaData(), "goals", Column("goal", Text), Column("done", BigInteger))


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """A goal that is only a question mark is none: such an event is poison for this version."""
    row = dict(rows.get("goals") or {"goal": None, "done": 0})
    if isinstance(recorded.payload, GoalSet):
        if recorded.payload.goal == "?":
            raise ValueError("a question mark is no goal")
        row["goal"] = recorded.payload.goal
    else:
        row["done"] += 1
    return [Put("goals", row)]


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The one row of the task."""
    return [RowRef("goals")]


GOALS = Projection("goals", 1, (GOALS_TABLE,), frozenset({"goal.set", "step.completed"}), apply, names)
PROJECTIONS = {**SHIPPED, "goals": GOALS}
