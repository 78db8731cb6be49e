"""Publishers and archivers over one log, from an empty Redis on: opening, append, archiving, answering, trimming."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import redis
from redis.asyncio import Redis

from events.archive import archiver, queries, store, watch
from events.archive.schema import metadata
from events.errors import Transient
from events.event import START
from events.log import recovery
from events.publisher import Publisher
from tests.chaos.faults import Child
from tests.chaos.rounds import World
from tests.servers import redis_server

PARTITIONS = 2
BATCHES, SIZE = 3, 4

_QUICK: list[tuple[Any, str, float]] = [
    (archiver, "_WAIT_MS", 20), (archiver, "_FIRST_PAUSE_S", 0.01), (recovery, "_PAUSE_S", 0.02),
    (recovery, "OVERTAKEN_S", 0.2), (watch, "POLL_S", 0.05),
]  # fmt: skip
"""Waits made short, for there are hundreds of rounds: none of them decides what is right."""


def raw_events(prefix: str) -> list[list[dict[str, Any]]]:
    """Batches of events of two runs, numbered, in both partitions."""
    return [
        [
            {
                "id": f"{prefix}-{run}-{batch}-{number}", "type": "message.added", "time": "2026-03-01T10:00:00Z",
                "run": f"{prefix}-{run}", "seq": batch * SIZE // 2 + number, "data": {"role": "user", "content": "x"},
            }
            for run in ("a", "b")
            for number in range(1, SIZE // 2 + 1)
        ]
        for batch in range(BATCHES)
    ]  # fmt: skip


class LogWorld(World):
    """What both victims share."""

    def begin(self) -> None:
        for module, name, value in _QUICK:
            assert hasattr(module, name), name
            setattr(module, name, value)
        self.redis = redis_server(self.folder / "redis")
        super().begin()

    def end(self) -> None:
        self.redis.stop()

    def make_template(self) -> None:
        log = self.stores().log()
        log.write_now(metadata.create_all)
        log.write_now(lambda conn: store.open_log(conn, PARTITIONS, 0))

    def renew(self) -> None:
        super().renew()
        with redis.Redis.from_url(self.redis.url) as client:
            client.flushall()
        self.acknowledged = self.folder / "acknowledged"
        self.acknowledged.write_text("")

    @abstractmethod
    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        """As above."""

    def batches(self, prefix: str) -> list[list[dict[str, Any]]]:
        """What a publisher publishes, call by call."""
        return raw_events(prefix)

    def archive(self) -> None:
        """An archiver, until SIGTERM."""
        asyncio.run(self._archive())

    def publish(self, prefix: str = "first") -> None:
        """Publish all batches durably; again with the same ids what was not answered."""
        asyncio.run(self._publish(prefix))

    def check(self) -> None:
        """Each event once, in the order of its run, at dense positions; what was acknowledged before now is there."""
        log = self.stores().log()
        rows = [a for p in range(PARTITIONS) for a in log.read_now(lambda c, p=p: queries.read_log(c, p, START, 9999))]
        epochs = log.read_now(queries.read_epochs)
        log.close()
        effective = [a.event() for a in rows if a.verdict == "effective"]
        acknowledged = set(self.acknowledged.read_text().split())
        assert Counter(event.id for event in effective) == dict.fromkeys(acknowledged, 1)
        assert len(acknowledged) % (BATCHES * SIZE) == 0 < len(acknowledged)
        for run in {event.run for event in effective}:
            numbers = [event.seq for event in effective if event.run == run]
            assert numbers == list(range(1, len(numbers) + 1)), (run, numbers)
        for partition in range(PARTITIONS):
            positions = [START, *(a.position for a in rows if a.partition == partition)]
            for one, following in itertools.pairwise(positions):
                assert store.next_of(one, epochs[partition]) == following

    async def _archive(self) -> None:
        async with self._open() as (client, log):
            stopping = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
            await archiver.Archiver(client, log, PARTITIONS, hot_window=2).run(stopping)

    async def _publish(self, prefix: str) -> None:
        async with self._open() as (client, log):
            publisher = Publisher(client, log, PARTITIONS, timeout_s=20)
            await publisher.start()
            try:
                for batch in self.batches(prefix):
                    await self._publish_batch(publisher, batch)
            finally:
                await publisher.stop()

    async def _publish_batch(self, publisher: Publisher, batch: list[dict[str, Any]]) -> None:
        outcomes = await _persistently(publisher, batch)
        assert {outcome.status for outcome in outcomes} <= {"stored", "duplicate"}, json.dumps(repr(outcomes))
        with self.acknowledged.open("a") as file:
            file.write("".join(f"{raw['id']}\n" for raw in batch))

    @asynccontextmanager
    async def _open(self) -> Any:
        log = self.stores().log()
        async with Redis.from_url(self.redis.url) as client:
            yield client, log
        log.close()


async def _persistently(publisher: Publisher, batch: list[dict[str, Any]]) -> Any:
    while True:
        try:
            return await publisher.publish(batch)
        except Transient:
            await asyncio.sleep(0.02)
