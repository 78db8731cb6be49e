"""Reactors over a real archive, on both stores: each ended run settled once, whatever is stopped or taken over."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from events import door
from events.archive.schema import reactor_checkpoints
from events.database import Database
from events.errors import Fenced
from events.event import Event, Position
from events.registry import EVENT_TYPES
from services.reactors.checkpoints import advance, take_over
from services.reactors.hindsight import HINDSIGHT
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.settler import SETTLER
from tests.integration.reactor_lab import (
    PARTITIONS,
    ArchiveOutlet,
    checkpoints_at_end,
    loop_of,
    opened,
    put,
    run_events,
    run_until,
    stored,
    wait_for,
)  # fmt: skip
from tests.upgrades.goals_v2 import knowing


@pytest.fixture
def db(log_db: Database) -> Database:
    return opened(log_db, SETTLER, HINDSIGHT)


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
        await run_until([last], lambda: checkpoints_at_end(db, "settler") and checkpoints_at_end(db, HINDSIGHT.key))

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
