"""Reactors over a real archive, without a log: what a reactor appends is archived at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest
from sqlalchemy import select

from events import door
from events.archive import erasing, queries, store
from events.archive.reader import Archived
from events.archive.schema import metadata, reactor_checkpoints
from events.database import Database, Stores
from events.errors import Transient
from events.event import START, Event, Position
from events.keys import partition_of
from services.reactors import partition
from services.reactors.checkpoints import introduce
from services.reactors.hindsight import HINDSIGHT
from services.reactors.loop import ReactorLoop
from services.reactors.reactor import Reactor
from services.reactors.settler import SETTLER

PARTITIONS = 2
PATIENCE_S = 60.0
NOW_MS = 1_800_000_000_000


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have reactors look for events, and commit how far they are, many times a second."""
    monkeypatch.setattr(partition, "POLL_S", 0.05)
    monkeypatch.setattr(partition, "COMMIT_S", 0.02)


@dataclass
class ArchiveOutlet:
    """Appends straight to the archive, as publisher, log and archiver do together; ``failures`` come first."""

    db: Database
    failures: int = 0
    given_up: list[tuple[str, str]] = field(default_factory=list)
    calls: int = 0

    async def append(self, raws: Sequence[dict[str, Any]]) -> None:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise Transient("the log is closed")
        await self.db.write(lambda conn: archive(conn, [door.admit(raw) for raw in raws]))

    async def give_up(self, reactor: str, source: Archived, error: Exception) -> None:
        self.given_up.append((reactor, str(error)))


def opened(log: Database, *reactors: Reactor) -> Database:
    """An empty log, opened, in which the reactors begin."""
    log.write_now(lambda conn: store.open_log(conn, PARTITIONS, NOW_MS))
    log.write_now(lambda conn: introduce(conn, reactors))
    return log


@contextmanager
def sqlite_log(folder: Path, *reactors: Reactor) -> Iterator[Database]:
    """As ``opened``: a log of its own, in SQLite files in a folder."""
    log = Stores(f"sqlite:///{folder}").log()
    log.write_now(metadata.create_all)
    yield opened(log, *reactors)
    log.close()


def archive(conn: Any, events: Sequence[Event], received_ms: int | None = None) -> None:
    for event in events:
        partition = partition_of(event.org, event.key, PARTITIONS)
        mark = store.watermark(conn, partition)
        following = Position(max(mark.epoch, 1), mark.n + 1) if mark != START else Position(1, 0)
        if mark == START:
            store.end_epoch(conn, partition, START, 1, "", NOW_MS)
            mark = Position(1, -1)
        when = int(time() * 1000) if received_ms is None else received_ms
        store.archive_batch(conn, partition, mark, [(following, event)], when)
        erasing.erase_archived(conn, {partition: [(following, event)]}, when)


def run_events(name: str, reason: str = "end_turn", **started: Any) -> list[Event]:
    common = {"run": name, "task": f"task-{name}", "session": f"s-{name}", "user": "u1", "agent": "coder"}
    raws = [
        ("run.started", {"goal": "fix it", **started}),
        ("tool.called", {"call_id": "c1", "name": "bash", "arguments": {"command": "make"}}),
        ("tool.returned", {"call_id": "c1", "result": {"exit_code": 0}}),
        ("run.terminated", {"reason": reason}),
    ]
    return [door.admit({**common, "id": f"{name}-{n}", "type": t, "data": d}) for n, (t, d) in enumerate(raws)]


def put(db: Database, *events: Event, received_ms: int | None = None) -> None:
    db.write_now(lambda conn: archive(conn, events, received_ms))


def stored(db: Database, kind: str) -> list[Event]:
    def read(conn: Any) -> list[Event]:
        everything = [queries.read_log(conn, p, START, 10_000, None) for p in range(PARTITIONS)]
        return [a.event() for rows in everything for a in rows if a.type == kind and a.verdict == "effective"]

    return db.read_now(read)


def loop_of(db: Database, outlet: ArchiveOutlet, *reactors: Reactor, owner: str = "w1", **more: Any) -> ReactorLoop:
    chosen = reactors or (SETTLER, HINDSIGHT)
    return ReactorLoop(db, outlet, chosen, PARTITIONS, owner, **{"lease_s": 1.0, **more})


async def run_until(loops: Sequence[ReactorLoop], reached: Callable[[], bool]) -> None:
    stopping = asyncio.Event()
    tasks = [asyncio.create_task(loop.run(stopping)) for loop in loops]
    try:
        await wait_for(reached, tasks)
    finally:
        stopping.set()
        await asyncio.gather(*tasks)


async def wait_for(reached: Callable[[], bool], tasks: Sequence[asyncio.Task[None]] = ()) -> None:
    deadline = monotonic() + PATIENCE_S
    while not await asyncio.to_thread(reached):
        for task in tasks:
            if task.done():
                task.result()
        assert monotonic() < deadline, "not reached in time"
        await asyncio.sleep(0.02)


def checkpoints_at_end(db: Database, name: str) -> bool:
    def read(conn: Any) -> bool:
        marks = queries.read_watermarks(conn)
        rows = conn.execute(select(reactor_checkpoints).where(reactor_checkpoints.c.reactor == name)).all()
        return all(marks[row.partition] == (row.epoch, row.n) for row in rows)

    return db.read_now(read)
