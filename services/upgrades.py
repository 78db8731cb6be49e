"""Moving read models on to the code of a worker, where workers may do so (``REFOLD_WORKER_REBUILDS``).

During a rolling deploy processes of two versions run side by side, and each finds the other's generations stale. So
a version rebuilds a read model by itself only as long as it never had a generation of it: what somebody went back from,
or what failed its check, is a person's to rebuild.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from events.errors import Transient
from projections import generations
from projections.engine import ownership
from projections.projection import Projection
from services.api.jobs import Jobs
from services.composition import Backend
from services.supervisor import Run

LOOK_S = 5.0

_log = logging.getLogger("refold.upgrades")


def upgrades(backend: Backend, projections: Iterable[Projection]) -> Run:
    """Rebuilds these projections, each in a process of its own, when this code is newer than what is read."""
    chosen = list(projections)

    async def run(stopping: asyncio.Event) -> None:
        jobs = Jobs(backend.settings.environ())
        try:
            while not stopping.is_set():
                for projection in chosen:
                    with suppress(Transient):
                        await _upgrade(backend, jobs, projection)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), LOOK_S)
        finally:
            await jobs.stop()

    return run


async def _upgrade(backend: Backend, jobs: Jobs, projection: Projection) -> None:
    if jobs.running("rebuild", projection.name) or not await backend.db.read(partial(is_due, projection=projection)):
        return
    _log.info("%s: what is read was made by former code; it is rebuilt", projection.name)
    jobs.start("rebuild", [projection.name])


def is_due(conn: Connection, projection: Projection) -> bool:
    """Whether the running code should rebuild a read model: it is new to it, and nobody is at it."""
    current = generations.serving(conn, projection)
    if current is None or current.matches(projection):
        return False
    ours = [one for one in generations.list_all(conn, projection.name) if one.matches(projection)]
    begun = all(one.state == "building" for one in ours)
    return begun and not ownership.is_held(conn, ownership.rebuild_lease(projection.name))
