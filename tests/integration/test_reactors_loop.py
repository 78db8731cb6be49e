"""Reactors over a real archive, on both stores: each ended run settled once, whatever is stopped or taken over."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from events import door
from events.archive import queries, store
from events.archive.reader import Archived
from events.archive.schema import reactor_checkpoints
from events.database import Database
from events.errors import Fenced, Transient
from events.event import START, Event, Position
from events.keys import partition_of
from events.registry import EVENT_TYPES
from services.reactors.checkpoints import advance, introduce, take_over
from services.reactors.hindsight import HINDSIGHT
from services.reactors.loop import ReactorLoop
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.settler import SETTLER
from tests.upgrades.goals_v2 import knowing

PARTITIONS = 2
PATIENCE_S = 60.0
NOW_MS = 1_800_000_000_000


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


def run_events(name: str, reason: str = "end_turn", **started: Any) -> list[Event]:
    common = {"run": name, "task": f"task-{name}", "session": f"s-{name}", "user": "u1", "agent": "coder"}
    raws = [
        ("run.started", {"goal": "fix it", **started}),
        ("tool.called", {"call_id": "c1", "name": "bash", "arguments": {"command": "make"}}),
        ("tool.returned", {"call_id": "c1", "result": {"exit_code": 0}}),
        ("run.terminated", {"reason": reason}),
    ]
    return [door.admit({**common, "id": f"{name}-{n}", "type": t, "data": d}) for n, (t, d) in enumerate(raws)]


@pytest.fixture
def db(log_db: Database) -> Database:
    log_db.write_now(lambda conn: store.open_log(conn, PARTITIONS, NOW_MS))
    log_db.write_now(lambda conn: introduce(conn, [SETTLER, HINDSIGHT]))
    return log_db


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


def test_an_ended_run_is_settled_and_looked_back_on(db: Database) -> None:
    put(db, *run_events("r1", reason="timeout"))
    asyncio.run(run_until([loop_of(db, ArchiveOutlet(db))], lambda: len(stored(db, "experience.recorded")) == 2
                          and len(stored(db, "settlement.degraded")) == 1))  # fmt: skip
    (settlement,) = stored(db, "settlement.degraded")
    assert (settlement.key, settlement.run, settlement.task) == ("session/s-r1", "r1", "task-r1")
    assert settlement.causation == "r1-3"
    assert '"degraded":"no_model"' in settlement.data
    assert '"reason":"timeout"' in settlement.data
    assert '"interrupted":true' in settlement.data
    assert "command: make: ok" in settlement.data
    assert "session_state" not in settlement.data
    user, agent = sorted(stored(db, "experience.recorded"), key=lambda e: e.key, reverse=True)
    assert (user.key, agent.key) == ("user/u1", "agent/coder")
    assert "fix it" in user.data
    # what travels to the agent's scope names nobody and quotes nothing
    assert (agent.user, agent.session, agent.task, agent.run) == ("", "", "", "")
    assert "fix it" not in agent.data
    assert "make" not in agent.data


@pytest.mark.parametrize("seed", range(3))
def test_stopping_anywhere_settles_each_run_exactly_once(db: Database, seed: int) -> None:
    """C5, C8: killed, resumed, read again from behind: one settlement a run."""
    chance = random.Random(seed)
    for n in range(12):
        put(db, *run_events(f"r{n}"))

    async def scenario() -> None:
        outlet = ArchiveOutlet(db, failures=5)
        for life in range(8):
            task = asyncio.create_task(loop_of(db, outlet, owner=f"w{life}", lease_s=0.5).run(asyncio.Event()))
            await asyncio.sleep(chance.uniform(0.0, 0.15))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        # the checkpoint goes back by three, as after a restore
        back = update(reactor_checkpoints).values(n=reactor_checkpoints.c.n - 3).where(reactor_checkpoints.c.n > 3)
        await db.write(lambda conn: conn.execute(back) and None)
        last = loop_of(db, outlet, owner="last", lease_s=0.5)
        await run_until([last], lambda: checkpoints_at_end(db, "settler") and checkpoints_at_end(db, "hindsight"))

    asyncio.run(scenario())
    assert sorted(e.run for e in stored(db, "settlement.degraded")) == sorted(f"r{n}" for n in range(12))
    assert len(stored(db, "experience.recorded")) == 24


def test_two_workers_share_and_settle_once(db: Database) -> None:
    """C6."""
    loops = [loop_of(db, ArchiveOutlet(db), owner=f"w{n}", lease_s=0.6) for n in range(2)]

    async def scenario() -> None:
        stopping = asyncio.Event()
        tasks = [asyncio.create_task(loop.run(stopping)) for loop in loops]
        await wait_for(lambda: all(len(loop._running) == PARTITIONS for loop in loops), tasks)
        for n in range(10):
            put(db, *run_events(f"r{n}"))
            for loop in loops:
                loop.wake()
        await wait_for(lambda: len(stored(db, "settlement.degraded")) == 10, tasks)
        await wait_for(lambda: checkpoints_at_end(db, "settler"), tasks)
        stopping.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert len(stored(db, "settlement.degraded")) == 10


@pytest.mark.parametrize("newer", [2, 3], ids=["its evidence", "its end"])
def test_a_run_with_newer_events_is_settled_by_newer_code(
    db: Database, newer: int, caplog: pytest.LogCaptureFixture
) -> None:
    """C12: the former code settles the others, leaves this one, says so once; the checkpoint stays before its end."""
    left = run_events("left")
    left[newer] = msgspec.structs.replace(left[newer], schemaversion=2)
    others = [run_events(f"r{n}") for n in range(6)]
    put(db, *left, *(event for events in others for event in events))

    def settled() -> set[str]:
        return {event.run for event in stored(db, "settlement.degraded")}

    with caplog.at_level(logging.WARNING, "refold.reactors"):
        asyncio.run(run_until([loop_of(db, ArchiveOutlet(db), owner="old")], lambda: len(settled()) == 6))
    assert "left" not in settled()
    said = [record.getMessage() for record in caplog.records if "leaves partition" in record.getMessage()]
    assert 1 <= len(said) <= 2 and "v2 is newer than this code knows" in said[0]
    assert not checkpoints_at_end(db, "settler")

    kind = EVENT_TYPES[left[newer].type]
    with knowing(replace(kind, version=2, upcast={1: dict})):
        new = loop_of(db, ArchiveOutlet(db), owner="new")
        asyncio.run(run_until([new], lambda: "left" in settled() and checkpoints_at_end(db, "settler")))
    assert sorted(event.run for event in stored(db, "settlement.degraded")) == sorted(settled())
    assert len(settled()) == 7


def test_only_the_ending_that_counts_is_settled(db: Database) -> None:
    """C15."""
    events = run_events("r1", reason="interrupt")
    late = [
        door.admit({**_names(events[0]), "id": "late-1", "type": "run.terminated", "data": {"reason": "end_turn"}}),
        door.admit({**_names(events[0]), "id": "late-2", "type": "step.started", "data": {"step": "s"}}),
    ]
    put(db, *events, *late)
    asyncio.run(run_until([loop_of(db, ArchiveOutlet(db))], lambda: checkpoints_at_end(db, "settler")
                          and len(stored(db, "settlement.degraded")) == 1))  # fmt: skip
    (settlement,) = stored(db, "settlement.degraded")
    assert '"reason":"interrupt"' in settlement.data


def test_a_lost_run_that_lived_is_settled_again_as_the_next_version(db: Database) -> None:
    events = run_events("r1", reason="lost")
    put(db, *events)
    loop = loop_of(db, ArchiveOutlet(db))
    asyncio.run(run_until([loop], lambda: len(stored(db, "settlement.degraded")) == 1))
    alive = {"id": "alive", "type": "run.heartbeat", "data": {}}
    end = {"id": "end", "type": "run.terminated", "data": {"reason": "end_turn"}}
    put(db, *(door.admit({**_names(events[0]), **raw}) for raw in (alive, end)))
    asyncio.run(run_until([loop_of(db, ArchiveOutlet(db))], lambda: len(stored(db, "settlement.degraded")) == 2))
    assert ['"version":2' in e.data for e in sorted(stored(db, "settlement.degraded"), key=lambda e: e.id)].count(
        True
    ) == 1


def test_a_run_that_settles_itself_is_left_alone_until_its_deadline(db: Database) -> None:
    put(db, *run_events("slow", settles="agent", settle_deadline_s=0.8))
    put(db, *run_events("done", settles="agent", settle_deadline_s=0.8))
    recorded = {"type": "settlement.recorded", "data": {"session_state": {"goal": "fix it"}}, "id": "own"}
    put(db, door.admit({**_names(run_events("done")[0]), **recorded}))
    began = monotonic()
    loop = loop_of(db, ArchiveOutlet(db))
    asyncio.run(run_until([loop], lambda: checkpoints_at_end(db, "settler")))
    assert monotonic() - began > 0.5
    assert [e.run for e in stored(db, "settlement.degraded")] == ["slow"]


def test_slow_work_holds_nothing_up_and_the_checkpoint_stays_behind_it(db: Database) -> None:
    gate, seen = asyncio.Event(), list[str]()

    async def react(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        if reaction.event.run == "r0":
            await gate.wait()
        seen.append(reaction.event.run)
        return []

    slow = Reactor("slow", frozenset(("run.terminated",)), react, from_start=True)
    for n in range(8):
        put(db, *run_events(f"r{n}"))

    async def scenario() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(loop_of(db, ArchiveOutlet(db), slow).run(stopping))
        await wait_for(lambda: len(seen) == 7, [task])
        await asyncio.sleep(0.5)
        assert not checkpoints_at_end(db, "slow")
        gate.set()
        await wait_for(lambda: checkpoints_at_end(db, "slow"), [task])
        stopping.set()
        await task

    asyncio.run(scenario())
    assert sorted(seen) == sorted(f"r{n}" for n in range(8))


def test_a_new_reactor_starts_at_the_tail(db: Database) -> None:
    seen: list[str] = []

    async def react(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        seen.append(reaction.event.run)
        return []

    fresh = Reactor("fresh", frozenset(("run.terminated",)), react)
    put(db, *run_events("old"))
    asyncio.run(run_until([loop_of(db, ArchiveOutlet(db), fresh)], lambda: checkpoints_at_end(db, "fresh")))
    put(db, *run_events("new"))
    asyncio.run(run_until([loop_of(db, ArchiveOutlet(db), fresh)], lambda: bool(seen)))
    assert seen == ["new"]


def test_a_reaction_that_cannot_work_is_kept_visibly_and_the_rest_goes_on(db: Database) -> None:
    async def react(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        if reaction.event.run == "r1":
            raise ValueError("cannot")
        return [reaction.derive("settlement.degraded", {"degraded": "no_model"}, run=reaction.event.run)]

    outlet = ArchiveOutlet(db)
    broken = Reactor("broken", frozenset(("run.terminated",)), react, from_start=True)
    for n in range(3):
        put(db, *run_events(f"r{n}"))
    asyncio.run(
        run_until([loop_of(db, outlet, broken)], lambda: checkpoints_at_end(db, "broken") and bool(outlet.given_up))
    )
    assert outlet.given_up == [("broken", "cannot")]
    assert sorted(e.run for e in stored(db, "settlement.degraded")) == ["r0", "r2"]


def test_a_zombie_cannot_move_the_checkpoint(db: Database) -> None:
    put(db, *run_events("r1"))
    zombie = db.write_now(lambda conn: take_over(conn, "settler", 0))
    owner = db.write_now(lambda conn: take_over(conn, "settler", 0))
    with pytest.raises(Fenced):
        db.write_now(lambda conn: advance(conn, zombie, Position(1, 5)))
    assert db.write_now(lambda conn: advance(conn, owner, Position(1, 0))).position == Position(1, 0)


def _names(event: Event) -> dict[str, str]:
    return {name: getattr(event, name) for name in ("run", "task", "session", "user", "agent")}
