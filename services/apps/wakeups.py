"""Wake-ups: the archiver says on a pub/sub channel that a partition has advanced; consumers look at once.

A wake-up that is lost costs a moment, since every consumer also looks by itself: so Redis may be away, and what is
archived is folded all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from faststream import FastStream
from faststream.redis import PubSub, RedisBroker
from faststream.redis.message import PubSubMessage, RedisChannelMessage

from events.log.client import AnyRedis, live_url
from events.log.layout import ARCHIVED_CHANNEL
from services.apps.host import new_app, new_broker, serve
from services.supervisor import Run, Supervisor

Wake = Callable[[int], None]
"""Told the partition whose archive has advanced. Cheap; never blocks."""

_log = logging.getLogger("refold.wakeups")


def wakeup_app(redis_url: str, wake: Wake, *, consumer: str) -> tuple[FastStream, RedisBroker]:
    """The FastStream app that hears wake-ups for one consumer (``projector``, ``reactors``)."""
    broker = new_broker(redis_url, description="The log's Redis.")

    @broker.subscriber(PubSub(ARCHIVED_CHANNEL), parser=_parse, decoder=_decode, no_reply=True, title=consumer)
    async def archive_advanced(message: bytes) -> None:
        """`<partition> <epoch>-<n>`: the archive of a partition has advanced to this position."""
        partition, _, _ = message.partition(b" ")
        if partition.isdigit():
            wake(int(partition))
        else:
            _log.warning("a message on %s is none of ours", ARCHIVED_CHANNEL)

    app = new_app(broker, title=f"Refold {consumer}", description="Woken whenever the archive has advanced.")
    return app, broker


async def run_awake(
    redis: AnyRedis, redis_url: str, wake: Wake, consumer: str, work: Run, stopping: asyncio.Event
) -> None:
    """Run ``work`` until ``stopping``, with wake-ups whenever Redis is there to give them."""

    async def hear(until: asyncio.Event) -> None:
        url = await live_url(redis, redis_url)

        async def at_home() -> bool:
            return await live_url(redis, redis_url, liked=url) == url

        app, _ = wakeup_app(url, wake, consumer=consumer)
        await serve(app, until, at_home)

    hearing = Supervisor()
    hearing.start(f"wake-ups of the {consumer}", hear)
    try:
        await work(stopping)
    finally:
        await hearing.stop()


async def _parse(message: PubSubMessage) -> RedisChannelMessage:
    return RedisChannelMessage(raw_message=message, body=message["data"])


async def _decode(message: RedisChannelMessage) -> bytes:
    return message.body
