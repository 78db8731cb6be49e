"""Cancelling a rebuild, wherever it runs: a mark in the log store that its builder looks for.

The mark names the generation, whose number is never used again, so that it can mean no later rebuild.
"""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

from events.database import Database, Stores
from events.errors import Refused
from projections import generations
from projections.engine import ownership
from projections.generations import Generation

KEPT_S = 86_400.0
"""How long a mark is seen."""

_TTL_S = 30.0


def request(conn: Connection, generation: Generation) -> None:
    """Ask whoever builds this generation to cancel it."""
    ownership.acquire(conn, _mark(generation), 0, "cancel", KEPT_S)


def is_requested(conn: Connection, projection: str) -> bool:
    """Whether the generation of a read model that is being built is to be cancelled."""
    building = generations.building(conn, projection)
    return building is not None and ownership.is_held(conn, _mark(building))


def abandon(projection: str, stores: Stores, log: Database) -> Generation:
    """Drop what a builder left that died; the generation that is gone.

    Raises Refused when somebody builds it, or nothing is being built.
    """
    lease, owner = ownership.rebuild_lease(projection), uuid4().hex
    if not log.write_now(lambda conn: ownership.acquire(conn, lease, 0, owner, _TTL_S)):
        raise Refused(f"{projection} is being rebuilt", code="already_rebuilding")
    try:
        building = log.read_now(partial(generations.building, projection=projection))
        if building is None:
            raise Refused(f"no rebuild of {projection} runs: there is nothing to cancel", code="no_rebuild")
        log.write_now(lambda conn: generations.set_state(conn, building, "cancelled"))
        stores.drop_generation(building.name)
        return building
    finally:
        log.write_now(lambda conn: ownership.release(conn, lease, 0, owner))


def _mark(generation: Generation) -> str:
    return f"cancel/{generation.name}"
