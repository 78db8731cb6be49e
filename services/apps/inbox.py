"""The inbox: anyone who speaks Redis publishes to ``refold:inbox``; this takes it through the one door.

A consumer group, in as many processes as wanted: order does not matter here, and the door knows duplicates. What has
become durable, or was refused and is kept with its reason, is acknowledged and deleted; nothing else is. Whatever a
consumer left unacknowledged is read again: its own when it starts, that of dead ones after ``inbox_idle_s``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.message import FAKE_CONSUMER, RedisBatchStreamMessage
from redis.asyncio import Redis

from events.errors import Refused
from events.log.client import AnyRedis, ask, url_of
from events.publisher import Publisher
from services.apps.host import ensure_group, new_app, new_broker, serve
from services.apps.inbox_entry import read_entry

STREAM = "refold:inbox"
GROUP = "refold-door"
READ_WAIT_MS = 500
_CANCEL_AGAIN_S = 0.5

_log = logging.getLogger("refold.inbox")

Entry = tuple[bytes, Mapping[bytes, bytes] | None]
"""Entry id and fields, as redis-py answers them; None for an entry that was deleted while it was pending."""


@dataclass(frozen=True)
class Inbox:
    """One consumer of the inbox. ``consumer`` names it: the same name in two processes would share what is pending."""

    redis: AnyRedis
    redis_url: str
    publisher: Publisher
    consumer: str
    batch: int = 500
    idle_s: float = 30.0

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping``; raises when reading or the door fails, for the supervisor to start it again."""
        await self.publisher.claim()
        await ask(self.redis, STREAM, lambda node: ensure_group(node, STREAM, GROUP))
        await self.drain_own()
        sweeper = asyncio.create_task(self._sweep(stopping))
        served = asyncio.create_task(self._serve(stopping))
        try:
            done, _ = await asyncio.wait({served, sweeper}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.is_set():
                await served
            for task in done:
                await task
        finally:
            await _end(served, sweeper)

    async def _serve(self, stopping: asyncio.Event) -> None:
        url = await url_of(self.redis, self.redis_url, STREAM)

        async def at_home() -> bool:
            return await url_of(self.redis, self.redis_url, STREAM) == url

        app, _ = inbox_app(url, self)
        await serve(app, stopping, at_home)

    async def handle(self, entries: Sequence[Entry]) -> None:
        """Take entries through the door, then acknowledge and delete them. Raises when they are not durable yet.

        Nothing is looked at before it is sure that this Redis still holds our log: a refusal would keep what is another
        store's. What was read for nothing, the other store's consumers take over.
        """
        await self.publisher.claim()
        raws: list[Any] = []
        for _, fields in entries:
            if fields is None:
                continue
            try:
                raws += read_entry(fields)
            except Refused as refusal:
                refusal.context["raw"] = {_shown(name): _shown(value) for name, value in fields.items()}
                raws.append(refusal)
        await self.publisher.publish(raws, ack="durable", source="inbox")
        ids = [entry_id for entry_id, _ in entries]
        if ids:
            await ask(self.redis, STREAM, lambda node: _let_go(node, ids))

    async def drain_own(self) -> None:
        """Handle what this consumer read in an earlier life and did not acknowledge."""
        while True:
            answer: Any = await ask(
                self.redis,
                STREAM,
                lambda node: node.xreadgroup(GROUP, self.consumer, {STREAM: "0"}, count=self.batch),
            )
            entries = list(answer[0][1]) if answer else []
            if not entries:
                return
            _log.info("%d entries were left unacknowledged by %s: handled again", len(entries), self.consumer)
            await self.handle(entries)

    async def reclaim(self) -> int:
        """Take over and handle what other consumers have held for too long; how many entries that were."""
        cursor, total = b"0-0", 0
        while True:
            cursor, entries, _deleted = await ask(self.redis, STREAM, partial(self._autoclaim, cursor))
            await self.handle(entries)
            total += len(entries)
            if cursor == b"0-0":
                return total

    async def _autoclaim(self, cursor: bytes, node: Redis) -> Any:
        return await node.xautoclaim(
            STREAM, GROUP, self.consumer, int(self.idle_s * 1000), start_id=cursor, count=self.batch
        )

    async def _sweep(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            if claimed := await self.reclaim():
                _log.warning("%d entries were left by a dead consumer: handled here", claimed)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self.idle_s / 2)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they have ended: the client can swallow a cancellation while it reconnects."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _let_go(node: Redis, ids: Sequence[bytes]) -> None:
    async with node.pipeline(transaction=True) as pipe:
        pipe.xack(STREAM, GROUP, *ids)
        pipe.xdel(STREAM, *ids)
        await pipe.execute()


def inbox_app(redis_url: str, inbox: Inbox | None) -> tuple[FastStream, RedisBroker]:
    """The FastStream app of one inbox consumer; without an inbox it can only be described."""
    broker = new_broker(redis_url, description="The log's Redis; the inbox is its public side.")
    source = StreamSub(
        STREAM,
        group=GROUP,
        consumer=inbox.consumer if inbox else "consumer",
        batch=True,
        max_records=inbox.batch if inbox else 500,
        polling_interval=READ_WAIT_MS,
    )

    @broker.subscriber(
        stream=source, parser=_parse, decoder=_decode, ack_policy=AckPolicy.MANUAL, no_reply=True, title="inbox"
    )
    async def take_entries(entries: list[Entry]) -> None:
        """Events for Refold: flat fields, or JSON (a CloudEvent or a list of them) in `__data__`."""
        assert inbox is not None, "this app was built to be described, not to be run"
        await inbox.handle(entries)

    app = new_app(broker, title="Refold inbox", description="Events from anyone who speaks Redis, through one door.")
    return app, broker


async def _parse(message: Any) -> RedisBatchStreamMessage:
    """Pass a batch through as it was read: one undecodable entry must not take the others with it."""
    return RedisBatchStreamMessage(raw_message=message, body=b"", consumer=FAKE_CONSUMER, group=None)


async def _decode(message: RedisBatchStreamMessage) -> list[Entry]:
    raw = message.raw_message
    return list(zip(raw["message_ids"], raw["data"], strict=True))


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
