"""What tests of the log share: a real Redis with fsync always, a real log store, and an archiver one can step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from events.archive.reader import Archive
from events.archive.schema import metadata
from events.archive.store import archive_batch, log_id, open_log, watermark
from events.database import Database, Stores
from events.door import admit
from events.event import Event, Position
from events.log.client import AnyRedis
from events.log.log import WINDOW, Appended, Log
from events.log.recovery import open_partition
from events.log.tail import read
from events.log.trim import trim
from tests.redis_cluster import AnyServer, RedisCluster, Routed
from tests.servers import RedisServer, redis_server


@dataclass
class World:
    """One log of ``partitions`` partitions with everything around it."""

    server: AnyServer
    db: Database
    redis: Any
    partitions: int
    window: int
    limit: int | None
    clients: list[Any] = field(default_factory=list)

    @property
    def log_id(self) -> str:
        return self.db.read_now(log_id)

    @property
    def archive(self) -> Archive:
        return Archive(self.db)

    @property
    def log(self) -> Log:
        return self.appender(self.redis)

    def appender(self, redis: AnyRedis) -> Log:
        return Log(redis, self.partitions, self.archive, window=self.window, limit=self.limit)

    def client(self, **options: Any) -> Any:
        """One more connection pool, as another process would have; of a cluster, the same."""
        if isinstance(self.server, RedisCluster):
            return self.redis
        client = Redis.from_url(self.server.url, retry=Retry(NoBackoff(), 2), **options)
        self.clients.append(client)
        return client

    async def open(self, partition: int = 0) -> Position:
        return await open_partition(self.redis, self.db, partition)

    async def watermark(self, partition: int = 0) -> Position:
        return await self.db.read(lambda conn: watermark(conn, partition))

    async def archive_all(self, partition: int = 0, *, keep: int = 0) -> Position:
        """What the archiver does: everything in the log goes to the archive, then it is trimmed."""
        mark = await self.watermark(partition)
        while entries := await read(self.redis, self.log_id, partition, mark, 500):
            before, batch = mark, entries
            mark = await self.db.write(lambda conn: archive_batch(conn, partition, before, batch, 0))  # noqa: B023
            await trim(self.redis, self.log_id, partition, mark, keep)
        return mark

    async def archived_ids(self, partition: int = 0) -> list[str]:
        """Ids of the effective events, in order."""
        rows = await self.archive.read(partition, Position(0, -1), 100_000)
        return [row.event().id for row in rows if row.verdict == "effective"]


@asynccontextmanager
async def world(
    folder: Path,
    partitions: int = 1,
    window: int = WINDOW,
    limit: int | None = None,
    cluster: RedisCluster | None = None,
) -> AsyncIterator[World]:
    """A world whose partitions are open, on a Redis of its own or on a ``cluster``."""
    server: AnyServer = cluster or redis_server(folder / "redis")
    db = Stores(f"sqlite:///{folder}/stores").log()
    db.write_now(metadata.create_all)
    db.write_now(lambda conn: open_log(conn, partitions, 0))
    redis: Any = await Routed.open(server.url) if cluster else Redis.from_url(server.url, retry=Retry(NoBackoff(), 2))
    made = World(server, db, redis, partitions, window, limit, [redis])
    try:
        for partition in range(partitions):
            await made.open(partition)
        yield made
    finally:
        for client in made.clients:
            await client.aclose()
        db.close()
        if isinstance(server, RedisServer) and server.process.poll() is None:
            server.stop()


Scenario = Callable[[World], Awaitable[None]]


def in_world(**options: Any) -> Callable[[Scenario], Callable[[Path], None]]:
    """Make a test of a scenario that happens in a world."""

    def decorate(scenario: Scenario) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            asyncio.run(_happen(scenario, tmp_path, options))

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate


def in_each_world(**options: Any) -> Callable[[Scenario], Callable[..., None]]:
    """Make two tests of a scenario: on a single Redis, and on a Redis Cluster."""

    def decorate(scenario: Scenario) -> Callable[..., None]:
        @pytest.mark.parametrize("redis", ["single", "cluster"])
        def test(tmp_path: Path, redis: str, request: pytest.FixtureRequest) -> None:
            cluster = request.getfixturevalue("cluster") if redis == "cluster" else None
            asyncio.run(_happen(scenario, tmp_path, options | {"cluster": cluster}))

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate


async def _happen(scenario: Scenario, folder: Path, options: dict[str, Any]) -> None:
    async with world(folder, **options) as made:
        await scenario(made)


def event(
    id: str, type: str = "message.added", *, task: str = "t1", run: str = "r1", seq: int = 0, **data: Any
) -> Event:
    """An admitted event of a run; ``data`` is completed where its type needs more."""
    needed: dict[str, dict[str, Any]] = {
        "message.added": {"role": "user", "content": "hello"},
        "step.started": {"step": "s1"},
        "tool.called": {"call_id": "c1", "name": "search"},
        "tool.returned": {"call_id": "c1"},
        "tool.failed": {"call_id": "c1"},
        "run.terminated": {"reason": "end_turn"},
        "thread.written": {"checkpoint": "c1", "writer": "w1", "writes": []},
    }
    raw: dict[str, Any] = {"id": id, "type": type, "run": run, "task": task, "data": {**needed.get(type, {}), **data}}
    return admit({**raw, "seq": seq} if seq else raw)


def start(run: str, attempt: int = 1, *, task: str = "t1", seq: int = 0) -> Event:
    """A ``run.started``."""
    return event(f"start-{run}-{attempt}", "run.started", task=task, run=run, seq=seq, attempt=attempt)


def statuses(outcomes: list[Appended]) -> list[str]:
    return [outcome.status for outcome in outcomes]


def positions(outcomes: list[Appended]) -> list[Position | None]:
    return [outcome.position for outcome in outcomes]
