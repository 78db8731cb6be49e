"""Event types that nobody knew when they were archived: how often they came, counted as they are written.

They are stored and ignored by read models; a count that grows tells of a misspelt type, or of an upgrade that is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, func, select, text

from events.archive.schema import unknown_types
from events.event import Event
from events.registry import EVENT_TYPES

_COUNT = text(
    "INSERT INTO unknown_types (org, type, events, first_ms, last_ms) VALUES (:org, :type, :events, :ms, :ms) "
    "ON CONFLICT (org, type) DO UPDATE SET events = unknown_types.events + excluded.events, last_ms = excluded.last_ms"
)


class UnknownType(NamedTuple):
    """A type of events that this code does not know: how many effective ones are archived, received when (Unix ms)."""

    type: str
    events: int
    first_ms: int
    last_ms: int


def count_unknown(conn: Connection, events: Iterable[Event], received_ms: int) -> None:
    """Count newly archived, effective events whose type this code does not know."""
    found = Counter((event.org, event.type) for event in events)
    if found:
        rows = [{"org": o, "type": t, "events": n, "ms": received_ms} for (o, t), n in sorted(found.items())]
        conn.execute(_COUNT, rows)


def read_unknown(conn: Connection, limit: int, org: str | None = None) -> list[UnknownType]:
    """The unknown types (of one org; None: of all, for admins), the most frequent first.

    A type that the running code has come to know since is left out.
    """
    table = unknown_types.c
    events = func.sum(table.events)
    query = select(table.type, events, func.min(table.first_ms), func.max(table.last_ms)).group_by(table.type)
    if org is not None:
        query = query.where(table.org == org)
    query = query.where(table.type.not_in(EVENT_TYPES)).order_by(events.desc(), table.type).limit(limit)
    return [UnknownType(type_, int(n), first, last) for type_, n, first, last in conn.execute(query)]


def count_all_unknown(conn: Connection) -> int:
    """How many effective events of unknown types there are in all."""
    table = unknown_types.c
    return int(conn.execute(select(func.sum(table.events)).where(table.type.not_in(EVENT_TYPES))).scalar() or 0)
