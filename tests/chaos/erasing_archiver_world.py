"""Words are published and then erased; the archiver dies or sleeps, and another one sees it through, in Redis, too."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis

from events.archive import queries
from events.archive.subjects import Subject
from events.errors import Transient
from events.event import START
from events.log.layout import keys_of
from events.publisher import Publisher
from services.erasing.asking import ask, events_of
from tests.chaos.archiver_world import ArchiverWorld
from tests.chaos.faults import DEADLINE_S
from tests.chaos.log_world import PARTITIONS, raw_events

WORD = "zebrafish"


class ErasingArchiverWorld(ArchiverWorld):
    """The victim archives an erasure."""

    def batches(self, prefix: str) -> list[list[dict[str, Any]]]:
        """As there, for a user."""
        return [
            [raw | {"user": prefix, "data": {"role": "user", "content": WORD}} for raw in batch]
            for batch in raw_events(prefix)[:2]
        ]

    def check(self) -> None:
        """Every event has its place; of the first user's none says anything, and no stream has the words."""
        log = self.stores().log()
        rows = [a for p in range(PARTITIONS) for a in log.read_now(lambda c, p=p: queries.read_log(c, p, START, 9999))]  # type: ignore[misc]
        log.close()
        own = [a for a in rows if a.event().user == "first" and a.type != "scope.erased"]
        ids = sorted(a.event().id for a in own if a.verdict == "erased_by")
        assert ids == sorted(raw["id"] for batch in self.batches("first") for raw in batch)
        assert WORD not in str([a.event() for a in own])
        assert not self._in_redis(), "a stream has the words"

    async def _publish(self, prefix: str) -> None:
        await super()._publish(prefix)
        if prefix != "first":
            return
        async with self._open() as (client, log):
            publisher = Publisher(client, log, PARTITIONS, timeout_s=20)
            await publisher.start()
            try:
                await _persistently(publisher)
            finally:
                await publisher.stop()
        deadline = time.monotonic() + DEADLINE_S
        while self._in_redis() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _in_redis(self) -> bool:
        """Whether an entry of the erased user is in a stream."""
        with redis.Redis.from_url(self.redis.url) as client:
            entries = [entry for p in range(PARTITIONS) for entry in client.xrange(keys_of(p).log)]
        return any(fields.get(b"user") == b"first" and WORD.encode() in fields[b"data"] for _, fields in entries)


async def _persistently(publisher: Publisher) -> None:
    events = events_of(Subject("default", "user", "first"), "x", "", PARTITIONS)
    while True:
        try:
            return await ask(publisher, events)
        except Transient:
            await asyncio.sleep(0.02)


WORLD = ErasingArchiverWorld
