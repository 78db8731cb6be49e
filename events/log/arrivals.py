"""Learning which partitions have something new: by one blocking read on a single server, by a bell in a cluster.

A read of several keys does not cross the slots of a cluster, and one that waits for one key takes a connection. So in a
cluster whoever appends rings a bell, a pub/sub message that every node passes on. A ring that is lost costs a moment:
whoever waits looks at the log by itself before long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from events.errors import Transient
from events.event import Position
from events.log.client import AnyRedis, Cluster
from events.log.layout import APPENDED_CHANNEL, keys_of
from events.log.listener import Listener
from events.log.redis_errors import redis_errors

_LAST_N = 2**64 - 1

logger = logging.getLogger(__name__)


async def ring(redis: AnyRedis, partition: int) -> None:
    """Tell who waits that a partition has something new. Nothing to do on a single server; never raises Transient."""
    if isinstance(redis, Cluster):
        with suppress(Transient):
            await redis.ask(keys_of(partition).log, lambda node: node.publish(APPENDED_CHANNEL, partition))


class Arrivals:
    """What one reader of all partitions waits on. ``start`` it inside the event loop, and ``stop`` it there."""

    def __init__(self, redis: AnyRedis) -> None:
        self._redis = redis
        self._rung: set[int] = set()
        self._bell = asyncio.Event()
        self._listener = Listener(redis, APPENDED_CHANNEL, self._hear)

    def start(self) -> None:
        """Begin to listen, where there is a bell to hear."""
        if isinstance(self._redis, Cluster):
            self._listener.start()

    async def stop(self) -> None:
        """End listening."""
        await self._listener.stop()

    async def wait(self, marks: Mapping[int, Position], timeout_s: float) -> set[int]:
        """The partitions that may go on behind their mark, at the latest after ``timeout_s``; none: nothing was heard.

        Raises Transient when Redis cannot be reached or a log cannot be read.
        """
        if isinstance(self._redis, Redis):
            return await _blocking_read(self._redis, marks, timeout_s)
        if not self._rung:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), timeout_s)
        self._bell.clear()
        rung, self._rung = self._rung, set()
        return rung & marks.keys()

    def more(self, partition: int) -> None:
        """There is more in a partition than was read: do not wait for a bell that has rung already."""
        self._rung.add(partition)

    def _hear(self, data: bytes) -> None:
        if data.isdigit():
            self._rung.add(int(data))
            self._bell.set()
        else:
            logger.warning("a message on %s is none of ours: %.80r", APPENDED_CHANNEL, data)


async def _blocking_read(redis: Redis, marks: Mapping[int, Position], timeout_s: float) -> set[int]:
    starts: dict[Any, Any] = {keys_of(p).log: before_next(mark) for p, mark in marks.items()}
    try:
        with redis_errors():
            answer: Any = await redis.xread(starts, count=1, block=int(timeout_s * 1000))
    except ResponseError as error:
        # a key that is no stream any more: all are looked at again, and opened where needed
        raise Transient(f"the log cannot be read: {error}") from error
    named = {name.decode() for name, _ in answer}
    return {p for p in marks if keys_of(p).log in named}


def before_next(mark: Position) -> str:
    """The stream id after which the entries that follow ``mark`` begin."""
    if mark.n >= 0:
        return str(mark)
    return f"{mark.epoch - 1}-{_LAST_N}" if mark.epoch > 0 else "0-0"
