"""Keeps the embedded Redis alive: one that dies is started again on the same folder and port."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from services.embedded.redis_server import RedisServer, provide_redis, start_redis

LOOK_S = 0.1

_log = logging.getLogger("refold.redis")


class RedisKeeper:
    """The Redis of one data folder: somebody else's at a URL, or our own."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url

    @classmethod
    async def start(cls, folder: Path, url: str) -> RedisKeeper:
        """Use the Redis at ``url``; without one, start our own in ``folder``. Raises SetupError with what to do."""
        return cls(await asyncio.to_thread(provide_redis, folder, url=url))

    async def run(self, stopping: asyncio.Event) -> None:
        """Watch it until ``stopping``. Raises SetupError when it cannot be started again, for another try."""
        while not stopping.is_set():
            if not self._server.alive():
                await self._start_again()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_S)

    async def _start_again(self) -> None:
        folder, port = self._server.folder, self._server.port
        assert folder is not None, "only a server of our own can have ended"
        _log.warning("the embedded Redis ended; it is started again")
        self._server = await asyncio.to_thread(start_redis, folder, port=port)

    async def stop(self) -> None:
        """End our own server; everything it answered is on disk."""
        await asyncio.to_thread(self._server.stop)
