"""Wake-ups come through a FastStream subscription; without Redis work goes on, and later they come again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from events.log.layout import ARCHIVED_CHANNEL
from services.apps.wakeups import run_awake
from services.embedded.redis_server import start_redis


async def until_heard(redis_url: str, message: str, heard: list[int], wanted: int) -> None:
    async with Redis.from_url(redis_url) as redis, asyncio.timeout(60):
        while wanted not in heard:
            await redis.publish(ARCHIVED_CHANNEL, message)
            await asyncio.sleep(0.05)


def test_wake_ups_survive_nonsense_and_a_restart_of_redis(tmp_path: Path) -> None:
    server = start_redis(tmp_path)
    heard: list[int] = []
    ticks: list[int] = []

    async def work(stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            ticks.append(1)
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        nonlocal server
        stopping = asyncio.Event()
        running = asyncio.create_task(run_awake(Redis(), server.url, heard.append, "projector", work, stopping))
        await until_heard(server.url, "3 1-7", heard, 3)
        async with Redis.from_url(server.url) as redis:
            for nonsense in ("", "x 1-7", "\x00\xff", "-1 1-1"):
                await redis.publish(ARCHIVED_CHANNEL, nonsense)
        await until_heard(server.url, "4 1-8", heard, 4)
        assert set(heard) == {3, 4}
        await asyncio.to_thread(server.stop)
        before = len(ticks)
        while len(ticks) <= before + 5:  # noqa: ASYNC110  the work is not told of it
            await asyncio.sleep(0.02)
        server = await asyncio.to_thread(start_redis, tmp_path, port=server.port)
        await until_heard(server.url, "5 1-9", heard, 5)
        stopping.set()
        await running

    try:
        asyncio.run(scenario())
    finally:
        server.stop()
