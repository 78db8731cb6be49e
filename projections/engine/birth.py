"""The first generation of a read model: empty, active at once, folded from the first event by whoever owns it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from events.archive import store as archive
from events.database import Database, Stores
from events.errors import Fenced, SetupError
from projections import generations
from projections.engine import ownership
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection

RETRY_S = 0.05


def ensure_first_generation(
    projection: Projection, stores: Stores, log: Database, owner: str, ttl_s: float = 10.0
) -> None:
    """Create it if the read model has no active generation. Blocks while somebody else is at it.

    One that replaces another is not born empty: it is read from the other one's generation until its rebuild is done.
    Safe to be called by many workers in the same moment, and after one of them died in the middle.
    """
    lease = ownership.rebuild_lease(projection.name)
    while log.read_now(lambda conn: generations.serving(conn, projection)) is None:
        if not log.write_now(lambda conn: ownership.acquire(conn, lease, 0, owner, ttl_s)):
            time.sleep(RETRY_S)
            continue
        try:
            # frozen past the lease, it finds that somebody else is at it: then that one's generation counts
            with suppress(Fenced):
                _create_and_activate(
                    projection, stores, log, partial(ownership.confirm, name=lease, partition=0, owner=owner)
                )
        finally:
            log.write_now(lambda conn: ownership.release(conn, lease, 0, owner))


def create_store(
    projection: Projection, stores: Stores, log: Database, name: str, *, strict: bool = False
) -> GenerationStore:
    """The store of a generation with its tables; they are made if they are not there."""
    partitions = log.read_now(archive.partition_count)
    if partitions is None:
        raise SetupError("the log was not created yet: start the backend (`refold up`) first")
    store = GenerationStore(projection, stores.generation(name), strict=strict)
    store.create(partitions)
    return store


def _create_and_activate(
    projection: Projection, stores: Stores, log: Database, still_ours: Callable[[Connection], None]
) -> None:
    def register(conn: Connection) -> Generation | None:
        still_ours(conn)
        if generations.active(conn, projection.name) is not None:
            return None
        begun = generations.building(conn, projection.name)
        if begun is not None and begun.matches(projection):
            return begun
        return generations.create(conn, projection)

    generation = log.write_now(register)
    if generation is None:
        return
    create_store(projection, stores, log, generation.name).db.close()

    def activate(conn: Connection) -> None:
        still_ours(conn)
        generations.activate(conn, generation)

    log.write_now(activate)
