"""Hearing one pub/sub channel for as long as one wants to, whatever happens to the server that it is heard at."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.errors import SetupError, Transient
from events.log.client import AnyRedis, live_node
from events.log.redis_errors import redis_errors

_RETRY_S = 0.5
_LISTEN_S = 1.0
_TRUST_S = 10.0
"""How long a node of a cluster may be silent before another look is taken for one that answers: it may hang."""

logger = logging.getLogger(__name__)


class Listener:
    """Calls ``hear`` with each message of a channel. What is said while nobody listens is lost.

    ``start`` it inside the event loop, and ``stop`` it there. ``prepare`` is awaited before each attempt to listen.
    """

    def __init__(
        self,
        redis: AnyRedis,
        channel: str,
        hear: Callable[[bytes], None],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._redis = redis
        self._channel = channel
        self._hear = hear
        self._prepare = prepare
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to listen."""
        self._stopping = False
        self._task = asyncio.create_task(self._listen(), name=f"listening to {self._channel}")

    async def stop(self) -> None:
        """End listening."""
        if self._task is not None:
            # the client can swallow a cancellation while it reconnects; the flag ends the loop all the same
            self._stopping = True
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _listen(self) -> None:
        while not self._stopping:
            try:
                if self._prepare is not None:
                    await self._prepare()
                with redis_errors():
                    await self._listen_at(await live_node(self._redis))
            except (RedisError, OSError, SetupError, Transient) as error:
                logger.info("nothing is heard on %s for now: %s", self._channel, error)
                await asyncio.sleep(_RETRY_S)

    async def _listen_at(self, node: Redis) -> None:
        heard = time.monotonic()
        async with node.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel)
            while not self._stopping and (node is self._redis or time.monotonic() - heard < _TRUST_S):
                message = await pubsub.get_message(timeout=_LISTEN_S)
                if message is not None:
                    heard = time.monotonic()
                    self._hear(message["data"])
