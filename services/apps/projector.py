"""The projector as a service: the engine's loop, woken by a FastStream subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from events.log.client import AnyRedis
from projections.engine.projector import Projector
from services.apps.wakeups import run_awake


async def run_projector(new: Callable[[], Projector], redis: AnyRedis, redis_url: str, stopping: asyncio.Event) -> None:
    """Fold until ``stopping``, then hand over. Raises what the engine raises, for the supervisor to begin anew."""
    projector = new()

    async def work(until: asyncio.Event) -> None:
        try:
            await projector.start()
            ended = asyncio.create_task(projector.wait())
            asked = asyncio.create_task(until.wait())
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if not until.is_set():
                await ended
        finally:
            await projector.stop()

    await run_awake(redis, redis_url, projector.wake, "projector", work, stopping)
