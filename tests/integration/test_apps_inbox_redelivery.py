"""The inbox of a Redis that goes back to an older copy: everything is delivered again, and nothing changes."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from services.apps.inbox import GROUP, STREAM
from services.roles import inbox
from services.settings import Settings
from tests.integration.test_apps_inbox import archived, backend_of, flat, is_empty_group, reached, step
from tests.servers import RedisServer, redis_server

ENTRIES = 120
PENDING = 30
PATIENCE_S = 60.0


def test_a_group_that_goes_back_changes_nothing(tmp_path: Path) -> None:
    """C43: all that was handled stands in the stream again, a part of it pending at a consumer of the past."""
    server = redis_server(tmp_path / "redis")
    settings = Settings.read({}, data=tmp_path, redis_url=server.url, partitions=2, inbox_idle_s=0.5, inbox_batch=50)

    async def scenario() -> None:
        async with backend_of(settings, "archiver") as backend:
            redis: Any = backend.redis

            async def all_handled() -> bool:
                return await is_empty_group(redis)

            await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            for n in range(ENTRIES):
                await redis.xadd(STREAM, flat(step(n)))
            await redis.xreadgroup(GROUP, "of the past", {STREAM: ">"}, count=PENDING)
            await asyncio.to_thread(keep_a_copy, server)
            backend.supervisor.start("inbox", inbox(backend))
            await reached(all_handled, PATIENCE_S)
            before = await archived(backend)
            assert Counter(before) == {f"e{n}": 1 for n in range(ENTRIES)}
            await backend.supervisor.stop(["inbox"])
            await asyncio.to_thread(put_the_copy_back, server)
            assert (await redis.xlen(STREAM), (await redis.xpending(STREAM, GROUP))["pending"]) == (ENTRIES, PENDING)
            backend.supervisor.start("inbox", inbox(backend))
            await reached(all_handled, PATIENCE_S)
            await redis.xadd(STREAM, flat(step(ENTRIES)))
            await reached(all_handled, PATIENCE_S)
            assert await archived(backend) == [*before, f"e{ENTRIES}"]

    try:
        asyncio.run(scenario())
    finally:
        server.stop()


def keep_a_copy(server: RedisServer) -> None:
    server.kill()
    shutil.copytree(server.directory / "appendonlydir", server.directory / "older")
    server.restart()


def put_the_copy_back(server: RedisServer) -> None:
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    (server.directory / "older").rename(server.directory / "appendonlydir")
    server.restart()
