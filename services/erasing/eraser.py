"""The eraser: sees erasures through, whoever asked for them and died.

One process erases, by a lease; others stand by. It looks at the erasures of which something may be left (``traces``),
asks for those partitions that were not asked for, drops what nobody folds on, and records an erasure as finished when
nothing is left. All of it may be done again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from events.archive import erasing
from events.archive.erasing import Erasure
from events.clock import now_ms
from events.errors import RefoldError, Transient
from projections.engine import ownership
from services.composition import Backend
from services.erasing import traces
from services.erasing.asking import ask, events_of
from services.logs import brief

NAME = "eraser"
LOOK_S = 1.0

_log = logging.getLogger("refold.eraser")


@dataclass
class Eraser:
    """Sees erasures through. ``owner`` names this life of the process."""

    backend: Backend
    owner: str
    lease_s: float = 10.0

    async def run(self, stopping: asyncio.Event) -> None:
        """Look, or stand by, until ``stopping``; raises when the store cannot be used."""
        db, pause_s = self.backend.db, min(LOOK_S, self.lease_s / 3)
        try:
            while not stopping.is_set():
                unfinished = await db.read(erasing.read_unfinished)
                if unfinished and await self._hold():
                    for erasure in unfinished:
                        await self._see_through(erasure)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause_s)
        finally:
            await db.write(lambda conn: ownership.release(conn, NAME, 0, self.owner))

    async def _hold(self) -> bool:
        return await self.backend.db.write(lambda conn: ownership.acquire(conn, NAME, 0, self.owner, self.lease_s))

    async def _see_through(self, erasure: Erasure) -> None:
        try:
            if await see_through(self.backend, erasure):
                _log.info("erasure %s is done", erasure.erasure)  # whose it was is not for logs
        except Transient as error:
            _log.info("an erasure waits: %s", brief(error))
        except RefoldError as error:
            _log.warning("an erasure cannot go on: %s", brief(error))


async def see_through(backend: Backend, erasure: Erasure) -> bool:
    """Do what can be done of an erasure; whether that was all. Raises Transient, and RefoldError for what never can."""
    if len(erasure.partitions) < backend.partitions:
        await ask(backend.publisher, events_of(erasure.subject, erasure.erasure, erasure.by, backend.partitions))
        return False
    await asyncio.to_thread(traces.drop_old, backend.stores, backend.db, erasure)
    if await waits_for(backend, erasure):
        return False
    await backend.db.write(partial(traces.forget_refused, erasure=erasure))
    await traces.forget_vectors(backend.read_models, backend.db, erasure.subject.org)
    await asyncio.to_thread(traces.empty_journals, backend.stores, backend.db)
    await traces.rewrite_aof(backend.redis)
    await backend.db.write(partial(erasing.finish, erasure=erasure, now_ms=now_ms()))
    return True


async def waits_for(backend: Backend, erasure: Erasure) -> list[str]:
    """Where words of an erasure may still be, in words; empty when they are nowhere. Raises Transient."""
    if erasure.finished_ms is not None:
        return []
    missing = backend.partitions - len(erasure.partitions)
    found = [f"the archive: {missing} partitions have not come to it"] if missing else []
    found += [f"Redis: partition {p}" for p in await traces.still_in_redis(backend.redis, erasure)]
    for one in await asyncio.to_thread(traces.behind, backend.stores, backend.db, erasure):
        known = backend.projections.get(one.projection)
        # only what is read is anybody's to rebuild: the eraser drops the others, or somebody is building them
        stale = one.state == "active" and (known is None or not one.matches(known))
        found.append(
            f"{one.name} ({one.state})" + (f": rebuild it, `refold rebuild {one.projection}`" if stale else "")
        )
    return found
