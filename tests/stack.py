"""A log with its archive for tests: a real Redis, a real store, an archiver that may be stopped and started."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from events.archive import queries, store
from events.archive.archiver import Archiver
from events.archive.reader import Archive, Archived
from events.database import Database
from events.door import admit
from events.event import START, Event
from events.log.layout import keys_of
from events.publisher import Publisher
from tests.redis_cluster import AnyServer, open_redis

PARTITIONS = 4

_numbers = itertools.count()


def raw_event(run: str = "r1", type_: str = "message.added", **members: Any) -> dict[str, Any]:
    """A raw event with an id of its own."""
    data = {"role": "user", "content": "hello"} if type_ == "message.added" else {}
    return {
        "id": f"e{next(_numbers):08}",
        "type": type_,
        "run": run,
        "time": "2026-03-01T10:00:00Z",
        "data": data,
    } | members


def event(run: str = "r1", type_: str = "message.added", **members: Any) -> Event:
    """An admitted event with an id of its own."""
    return admit(raw_event(run, type_, **members))


@dataclass
class Stack:
    """Redis, log store, publisher, archiver. ``archive_on`` and ``archive_off`` start and stop archiving."""

    server: AnyServer
    db: Database
    redis: Any
    publisher: Publisher
    archiver_options: dict[str, Any] = field(default_factory=dict)
    _stopping: asyncio.Event | None = None
    _archiving: asyncio.Task[None] | None = None

    def archive_on(self) -> None:
        self._stopping = asyncio.Event()
        archiver = Archiver(self.redis, self.db, PARTITIONS, **self.archiver_options)
        self._archiving = asyncio.create_task(archiver.run(self._stopping))

    async def archive_off(self) -> None:
        if self._archiving is not None and self._stopping is not None:
            self._stopping.set()
            await self._archiving
            self._archiving = None

    def archived(self) -> list[Archived]:
        """The whole archive."""
        return self.db.read_now(
            lambda conn: [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 1_000_000)]
        )

    def ids(self) -> list[str]:
        """Ids of all effective events."""
        return sorted(a.event().id for a in self.archived() if a.verdict == "effective")

    async def until_on_the_log(self, count: int) -> None:
        """Wait until the open epochs hold so many entries, archived or not."""
        total = -1
        while total < count:
            await asyncio.sleep(0.01)
            nexts = [await self.redis.hget(keys_of(p).meta, "next") for p in range(PARTITIONS)]
            total = sum(int(n or 0) for n in nexts)

    async def until_archived(self, count: int) -> None:
        """Wait until the archive holds so many positions; the test's own time limit ends it."""
        archive = Archive(self.db)
        while (have := await archive.count()) != count:
            assert have < count
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running_stack(
    server: AnyServer,
    db: Database,
    *,
    timeout_s: float = 60.0,
    archive: bool = True,
    **archiver_options: Any,
) -> AsyncIterator[Stack]:
    """A stack on a Redis and an empty log store with tables; archiving from the start unless told otherwise."""
    db.write_now(lambda conn: store.open_log(conn, PARTITIONS, 0))
    redis = await open_redis(server.url)
    stack = Stack(server, db, redis, Publisher(redis, db, PARTITIONS, timeout_s=timeout_s), archiver_options)
    await stack.publisher.start()
    if archive:
        stack.archive_on()
    try:
        yield stack
    finally:
        await stack.archive_off()
        await stack.publisher.stop()
        await redis.aclose()
