"""Events that the log itself takes back later on: whoever folds it again need not fail on them, or die, once more."""

from __future__ import annotations

from sqlalchemy import Connection

from events.archive import queries
from events.event import Position
from projections.engine.fold import Refusal
from projections.engine.repair import DISCARDED, discard_of
from projections.projection import Projection

REFUSAL = Refusal("poison", "a later event of this key discards it")
"""Why such an event is parked unseen until its discard is reached, which takes it out again."""


def discarded(
    conn: Connection, projection: Projection, partition: int, after: Position, upto: Position | None = None
) -> dict[Position, Refusal]:
    """The events of a partition that are taken back for this projection between ``after`` and ``upto``."""
    taken_back: dict[tuple[str, str, str], Position] = {}
    for archived in queries.read_type(conn, partition, DISCARDED, after):
        found = discard_of(projection, archived)
        if found is not None and (upto is None or archived.position <= upto):
            event, event_id = found
            taken_back[(event.org, event.key, event_id)] = archived.position
    first = queries.read_ids(conn, list(taken_back))
    return {
        first[identity].position: REFUSAL
        for identity, discard in taken_back.items()
        if identity in first and first[identity].position < discard
    }
