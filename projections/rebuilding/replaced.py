"""Read models that a projection replaces: their generations serve it until it has its own, and can then be dropped."""

from __future__ import annotations

from functools import partial

from events.database import Database, Stores
from events.errors import Refused
from projections import generations
from projections.engine import ownership
from projections.generations import Generation
from projections.projection import Projection


def drop_replaced(projection: Projection, stores: Stores, log: Database) -> list[Generation]:
    """Drop every generation of what it replaces, the one that former code reads included; those that were dropped.

    Raises Refused while it is read from one of them itself, or while workers of former code fold one.
    """
    found = [
        one
        for name in projection.replaces
        for one in log.read_now(partial(generations.list_all, projection=name))
        if one.state != "dropped"
    ]
    if not found:
        return []
    if log.read_now(partial(generations.active, projection=projection.name)) is None:
        raise Refused(f"{projection.name} is still read from {found[0].name}: rebuild it first", code="in_use")
    for one in found:
        if log.read_now(partial(ownership.survey, generation=one.name)).workers:
            raise Refused(f"workers of former code still fold {one.name}: stop them first", code="in_use")
    for one in found:
        log.write_now(partial(generations.set_state, generation=one, state="dropped"))
        stores.drop_generation(one.name)
    return found
