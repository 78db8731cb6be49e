"""Refold against the ``eventsourcing`` library: the same events, projected into the same table of the same PostgreSQL.

The peer as its documentation recommends: a ``ProjectionRunner`` in one process, its subscription reading the events
that the application recorded before, and a view that writes its row and its tracking record in one transaction an
event. The view upserts without reading first, by prepared statements, and is spared the events that it does not want.

Refold live: a projector in one process as well, which finds its events in SQL as the peer does, folds them and commits
rows and checkpoints. And with more work than the peer has: the events stand on the Redis log, and an archiver, in a
process of its own as in production, copies them into SQL meanwhile. Refold rebuild: a new generation from the archive,
made active; in as many processes as there are cores where that pays. Every side commits with fsync and
``synchronous_commit``. The rate of the peer does not depend on how many events there are, so it gets fewer.
Run: ``make bench``, or ``python -m benchmarks.peer`` once ``pip install --group bench`` is done.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from multiprocessing.synchronize import Event as EventOfProcesses
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresTrackingRecorder
from eventsourcing.projection import Projection as PeerProjection
from eventsourcing.projection import ProjectionRunner
from eventsourcing.utils import get_topic
from psycopg.sql import SQL, Identifier
from redis.asyncio import Redis
from sqlalchemy import Connection, select
from sqlalchemy.engine import make_url

from benchmarks.activity import ACTIVITY, TABLE, tokens_of
from benchmarks.workload import agent_events
from events.archive.archiver import Archiver
from events.archive.reader import Archive
from events.archive.schema import metadata
from events.archive.store import open_log
from events.database import Database, Stores
from events.event import Event
from events.log.log import Log
from events.log.recovery import open_partitions
from events.types.thought import ModelResponded
from projections.engine import checkpoints
from projections.engine.projector import Projector
from projections.projection import Projection
from projections.rebuilding.rebuild import rebuild
from tests.servers import postgres_server, redis_server

PARTITIONS = 4
POLL_S = 0.02
TARGET_LIVE, TARGET_REBUILD = 20.0, 60.0
LIMIT_S = 600.0


class Task(Aggregate):
    """The peer's aggregate: everything that one task's agent reports."""

    @staticmethod
    def create_id(task: str) -> UUID:
        """One aggregate a task."""
        return uuid5(NAMESPACE_URL, f"/tasks/{task}")

    def __init__(self, task: str) -> None:
        self.task = task

    class Happened(Aggregate.Event):
        """One event, its data as text as in our log."""

        task: str
        type: str
        time: str
        data: str


class Tasks(Application[UUID]):
    """The peer's application."""


class ActivityView(PostgresTrackingRecorder):
    """The peer's materialised view: the same columns as ``benchmarks.activity``."""

    def __init__(self, datastore: PostgresDatastore, **options: Any) -> None:
        super().__init__(datastore, **options)
        table = (Identifier(datastore.schema), Identifier("activity"))
        self.sql_create_statements.append(
            SQL(
                "CREATE TABLE IF NOT EXISTS {0}.{1} (task text PRIMARY KEY, events bigint, steps_done bigint, "
                "tokens bigint, last_type text, last_time text)"
            ).format(*table)
        )
        self._upsert = SQL(
            "INSERT INTO {0}.{1} AS a VALUES (%s, 1, %s, %s, %s, %s) ON CONFLICT (task) DO UPDATE SET "
            "events = a.events + 1, steps_done = a.steps_done + excluded.steps_done, "
            "tokens = a.tokens + excluded.tokens, last_type = excluded.last_type, last_time = excluded.last_time"
        ).format(*table)

    def record(self, event: Task.Happened, tracking: Tracking) -> None:
        """Row and tracking in one transaction."""
        responded = event.type == "model.responded"
        tokens = tokens_of(msgspec.json.decode(event.data, type=ModelResponded)) if responded else 0
        done = int(event.type == "step.completed")
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(self._upsert, (event.task, done, tokens, event.type, event.time), prepare=True)


class Activity(PeerProjection[ActivityView]):
    """The peer's projection."""

    topics = (get_topic(Task.Happened),)

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Every event that arrives is one of those in ``topics``."""
        self.view.record(domain_event, tracking)


def peer(url: str, events: Sequence[Event]) -> float:
    """Events a second of the peer, from the first one to the last one committed."""
    parts = make_url(url)
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres", "POSTGRES_DBNAME": str(parts.database),
        "POSTGRES_HOST": str(parts.host), "POSTGRES_PORT": str(parts.port), "POSTGRES_USER": str(parts.username),
        "POSTGRES_PASSWORD": "trusted",
    }  # fmt: skip
    last = _record(Tasks(env), events)
    began = time.perf_counter()
    with ProjectionRunner(
        application_class=Tasks, projection_class=Activity, view_class=ActivityView, env=env
    ) as runner:
        runner.wait(last, timeout=LIMIT_S)
        took = time.perf_counter() - began
        with runner.view.datastore.transaction(commit=False) as cursor:
            row = cursor.execute("SELECT sum(events) AS events FROM activity").fetchone()
            assert row == {"events": len(events)}, row
    return len(events) / took


def _record(app: Tasks, events: Sequence[Event]) -> int:
    """Record the events in the peer's own store, many at once; the id of the last one."""
    tasks: dict[str, Task] = {}
    last = 0
    waiting = iter(events)
    while chunk := list(islice(waiting, 1000)):
        for event in chunk:
            if event.task not in tasks:
                tasks[event.task] = Task(task=event.task)
            tasks[event.task].trigger_event(
                Task.Happened, task=event.task, type=event.type, time=event.time, data=event.data
            )
        recordings = app.save(*{event.task: tasks[event.task] for event in chunk}.values())
        last = max(recording.notification.id for recording in recordings)
    app.close()
    return last


async def live(stores: Stores, log: Database, redis: Redis, url: str, events: Sequence[Event]) -> tuple[float, float]:
    """Events a second of archiver and projector side by side, and of a projector alone.

    The one begins with the Redis log, the other when all events are archived, as the peer's are when it begins.
    """
    log.write_now(metadata.create_all)
    log.write_now(lambda conn: open_log(conn, PARTITIONS, 0))
    await open_partitions(redis, log, range(PARTITIONS))
    waiting = iter(events)
    while chunk := list(islice(waiting, 1000)):
        await Log(redis, PARTITIONS, Archive(log)).append(chunk)
    with archiver(url, stores.url) as begin:
        began = time.perf_counter()
        begin.set()
        await project(ACTIVITY, stores, log, len(events))
        both_s = time.perf_counter() - began
    began = time.perf_counter()
    await project(replace(ACTIVITY, name="activity_alone"), stores, log, len(events))
    alone_s = time.perf_counter() - began
    return len(events) / both_s, len(events) / alone_s


@contextmanager
def archiver(redis_url: str, stores_url: str) -> Iterator[EventOfProcesses]:
    """An archiver in a process of its own, which begins when the event is set."""
    spawning = get_context("spawn")
    ready, begin, end = spawning.Event(), spawning.Event(), spawning.Event()
    process = spawning.Process(target=_archive, args=(redis_url, stores_url, ready, begin, end))
    process.start()
    ready.wait()
    yield begin
    end.set()
    process.join()


def _archive(redis_url: str, stores_url: str, *marks: EventOfProcesses) -> None:
    ready, begin, end = marks

    async def run() -> None:
        stopping = asyncio.Event()
        log, redis = Stores(stores_url).log(), Redis.from_url(redis_url)
        ready.set()
        await asyncio.to_thread(begin.wait)
        archiving = asyncio.create_task(Archiver(redis, log, PARTITIONS).run(stopping))
        await asyncio.to_thread(end.wait)
        stopping.set()
        await archiving
        await redis.aclose()
        log.close()

    asyncio.run(run())


async def project(projection: Projection, stores: Stores, log: Database, count: int) -> None:
    """A projector's work, until it has folded so many events."""
    projector = Projector([projection], stores, log, "bench", poll_s=POLL_S)
    await projector.start()
    store = stores.generation(f"{projection.name}__g1")
    while await store.read(_folded) < count:
        for partition in range(PARTITIONS):
            projector.wake(partition)
        await asyncio.sleep(POLL_S)
    _check(store, count)
    store.close()
    await projector.stop()


def rebuilt(stores: Stores, log: Database, count: int) -> float:
    """Events a second of a rebuild."""
    began = time.perf_counter()
    generation = rebuild(ACTIVITY, stores, log)
    took = time.perf_counter() - began
    store = stores.generation(generation.name)
    _check(store, count)
    store.close()
    return count / took


def _folded(conn: Connection) -> int:
    return sum(position.n + 1 for position in checkpoints.read_vector(conn).values())


def _check(store: Database, count: int) -> None:
    counts = store.read_now(lambda conn: conn.execute(select(TABLE.c.events)).scalars().all())
    assert sum(counts) == count, f"{sum(counts)} of {count} events are in the table"


def main() -> None:
    """Measure one after the other; print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000, help="events for Refold")
    parser.add_argument("--peer-events", type=int, default=10_200, help="of which the peer gets the first")
    options = parser.parse_args()
    events = list(agent_events(options.events))
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = postgres_server(folder / "postgres", fsync="on")
        redis_process = redis_server(folder / "redis")
        theirs = peer(server.new_database(), events[: options.peer_events])
        stores = Stores(server.new_database())
        log = stores.log()
        both, alone = asyncio.run(_ours(stores, log, redis_process.url, events))
        again = rebuilt(stores, log, len(events))
        log.close()
        redis_process.stop()
        server.stop()
    print(f"peer                   {theirs:10,.0f} events/s   one transaction an event, PostgreSQL, fsync")
    for what, rate, aim in (
        ("live, fold", alone, f"target {TARGET_LIVE:.0f}"),
        ("live, archive + fold", both, "more work than the peer has"),
        ("rebuild", again, f"target {TARGET_REBUILD:.0f}"),
    ):
        print(f"refold {what:20s} {rate:8,.0f} events/s   ratio {rate / theirs:5.1f} ({aim})")


async def _ours(stores: Stores, log: Database, url: str, events: Sequence[Event]) -> tuple[float, float]:
    redis = Redis.from_url(url)
    try:
        return await live(stores, log, redis, url, events)
    finally:
        await redis.aclose()


if __name__ == "__main__":
    main()
