"""A read model of one table, as simple as one can be: what each task has done so far.

For measurements against others, which get the same table: a row a task with counts and the last event.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BigInteger, Column, MetaData, Text

from events.event import Recorded
from events.types.plan import StepCompleted
from events.types.thought import ModelResponded
from projections.projection import Change, Projection, Put, RowRef, Rows, read_model_table

TABLE = read_model_table(
    MetaData(), "activity",
    Column("events", BigInteger), Column("steps_done", BigInteger), Column("tokens", BigInteger),
    Column("last_type", Text), Column("last_time", Text),
)  # fmt: skip

HANDLES = frozenset({
    "run.started", "plan.updated", "step.started", "message.added", "tool.called", "tool.returned", "model.responded",
    "step.completed", "run.terminated",
})  # fmt: skip


def tokens_of(payload: object) -> int:
    """Tokens that an event tells of."""
    return payload.tokens_in + payload.tokens_out if isinstance(payload, ModelResponded) else 0


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Count the event; remember what it was."""
    old = rows.get("activity") or {"events": 0, "steps_done": 0, "tokens": 0}
    row = {
        "events": old["events"] + 1,
        "steps_done": old["steps_done"] + isinstance(recorded.payload, StepCompleted),
        "tokens": old["tokens"] + tokens_of(recorded.payload),
        "last_type": recorded.event.type,
        "last_time": recorded.event.time,
    }
    return [Put("activity", row)]


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The task's row."""
    return [RowRef("activity")]


ACTIVITY = Projection("activity", 1, (TABLE,), HANDLES, apply, names)
