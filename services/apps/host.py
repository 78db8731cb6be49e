"""What the apps share: how a FastStream app is built here, and how it is served so that no failure goes unseen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from faststream import BaseMiddleware, FastStream
from faststream.exceptions import StopConsume
from faststream.redis import RedisBroker
from faststream.specification import AsyncAPI
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from services.logs import brief
from services.supervisor import Ended

WATCH_S = 0.2
"""How often a served app is asked whether all its subscribers still run."""

MOVES_S = 1.0
"""How often an app is asked whether it is still at home."""

AtHome = Callable[[], Awaitable[bool]]
"""Whether what an app reads is still where it reads; in a cluster it may move to another node."""

_log = logging.getLogger("refold.apps")


class StopOnError(BaseMiddleware[Any, Any]):
    """Turns any error of a handler into the end of its subscriber.

    FastStream goes on with the next batch otherwise, and what the failed one held is never read again.
    """

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        """Call the handler; log what it raises, and stop its subscriber."""
        try:
            return await call_next(msg)
        except Exception as error:
            _log.warning("a handler failed, its subscriber stops: %s", brief(error))
            raise StopConsume from error


def new_broker(redis_url: str, *, description: str) -> RedisBroker:
    """A broker whose handlers get what was read as it is: no injection, no validation, no silent next batch."""
    return RedisBroker(
        redis_url,
        apply_types=False,
        middlewares=(StopOnError,),
        logger=logging.getLogger("refold.faststream"),
        log_level=logging.DEBUG,
        graceful_timeout=10.0,
        max_connections=32,
        description=description,
    )


def new_app(broker: RedisBroker, *, title: str, description: str) -> FastStream:
    """The app around a broker, with its AsyncAPI description."""
    return FastStream(
        broker,
        logger=logging.getLogger("refold.faststream"),
        specification=AsyncAPI(title=title, description=description),
    )


async def serve(app: FastStream, stopping: asyncio.Event, at_home: AtHome | None = None) -> None:
    """Run an app until ``stopping``. Raises Ended when a subscriber of it stopped by itself, or it is not ``at_home``.

    FastStream ends quietly (exit code 0) when its stream or group is gone, and a subscriber that raised StopConsume
    just stays silent; the supervisor starts the app again when this raises.
    """
    try:
        await app.start()
        checked = time.monotonic()
        while not stopping.is_set():
            if not all(subscriber.running for broker in app.brokers for subscriber in broker.subscribers):
                raise Ended("a subscriber stopped reading")
            if at_home and time.monotonic() - checked > MOVES_S:
                if not await at_home():
                    raise Ended("what it reads is at another node of the Redis Cluster now")
                checked = time.monotonic()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), WATCH_S)
    finally:
        await app.stop()


async def ensure_group(redis: Redis, stream: str, group: str) -> None:
    """Make a consumer group that starts with the oldest entry (FastStream's would skip what is there already)."""
    try:
        await redis.xgroup_create(stream, group, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise
