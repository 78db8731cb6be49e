"""Events that the log itself takes back later on: whoever folds it again need not fail on them, or die, once more."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from events.archive import queries
from events.event import Position
from projections.engine.fold import Refusal
from projections.engine.repair import DISCARDED, discard_of
from projections.projection import Projection

_Identity = tuple[str, str, str]

REFUSAL = Refusal("poison", "a later event of this key discards it")
"""Why such an event is parked unseen until its discard is reached, which takes it out again."""


def discarded(
    conn: Connection, projection: Projection, upto: Mapping[int, Position] | None = None
) -> dict[int, dict[Position, Refusal]]:
    """By partition, the events that are discarded for this projection after they stand in the log, up to ``upto``."""
    taken_back: dict[_Identity, tuple[int, Position]] = {}
    for archived in queries.read_type(conn, DISCARDED):
        found = discard_of(projection, archived)
        if found is not None and (upto is None or archived.position <= upto[archived.partition]):
            event, event_id = found
            taken_back[(event.org, event.key, event_id)] = (archived.partition, archived.position)
    refused: dict[int, dict[Position, Refusal]] = {}
    for identity, first in queries.read_ids(conn, list(taken_back)).items():
        partition, discard = taken_back[identity]
        if first.position < discard:
            refused.setdefault(partition, {})[first.position] = REFUSAL
    return refused
