"""Projectors side by side: fair shares, hand-over, take-over after a death, poison that kills the process (C6, C7)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from events.clock import now_ms
from events.database import Database, Stores
from events.errors import SetupError
from projections import generations
from projections.engine import dead_letters, ownership
from projections.engine.projector import Projector
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import rebuild
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, dump, lab_in, naive, note, where

LEASE_S = 1.0
PATIENCE_S = 60.0

CHILD = """
import asyncio, signal, sys
from events.database import Stores
from projections.engine.projector import Projector
from tests.contracts.engine_lab import TOY

async def main():
    stores = Stores(sys.argv[1])
    log = stores.log()
    projector = Projector([TOY], stores, log, "child", lease_ttl_s=1.0, poll_s=0.05, batch=20)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await projector.start()
    print("started", flush=True)
    await stop.wait()
    await projector.stop()
    log.close()

asyncio.run(main())
"""


def child(stores: Stores, **environment: str) -> subprocess.Popen[str]:
    """A projector in a process of its own, which may die without harm to the test."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, stores.url],
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.02)


def projector(
    lab: Lab, name: str, *projections: Projection, log: Database | None = None, lease_s: float = LEASE_S
) -> Projector:
    return Projector(projections or (TOY,), lab.stores, log or lab.log, name, lease_ttl_s=lease_s, poll_s=0.05, batch=7)


async def caught_up(models: ReadModels) -> bool:
    status = await models.status()
    return all(each.state == "live" and each.lag_events == 0 for each in status)


def active_dump(lab: Lab) -> dict[str, Any]:
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None
    return lab.rows(active.name)


def reference(events: list[Any], positions: list[Any]) -> dict[str, Any]:
    logs: dict[int, list[Any]] = {}
    for each, position in zip(events, positions, strict=True):
        logs.setdefault(where(each.task), []).append((position, each))
    return naive(logs)


def test_a_lease_that_its_owner_does_not_know_of_keeps_nothing_from_being_folded(lab: Lab) -> None:
    """The answer to a commit can get lost: then a worker holds, and renews, what it does not know to be its own."""

    async def run() -> None:
        log2 = lab.stores.log()
        models = ReadModels([TOY], lab.stores, lab.log)
        one, two = (projector(lab, "p", log=log, lease_s=10 * PATIENCE_S) for log in (lab.log, log2))

        def give(conn: Connection, owner: str, partitions: range) -> None:
            for partition in partitions:
                ownership.acquire(conn, "toy__g1", partition, owner, 10 * PATIENCE_S)

        await lab.log.write(partial(give, owner=one.owner, partitions=range(PARTITIONS)))
        await asyncio.gather(one.start(), two.start())
        await asyncio.to_thread(lab.archive, *(note(f"e{i}", f"t{i}", "n", i) for i in range(40)))

        async def shared() -> bool:
            seen = await lab.log.read(partial(ownership.survey, generation="toy__g1"))
            return sorted(map(list(seen.owners.values()).count, (one.owner, two.owner))) == [PARTITIONS // 2] * 2

        await until(shared)
        await until(partial(caught_up, models))
        await one.stop()
        await two.stop()
        log2.close()
        models.close()

    asyncio.run(run())


def test_two_projectors_share_and_apply_each_event_once(lab: Lab) -> None:
    """C6: both start at the same moment with the same name, on stores without any generation."""

    async def run() -> None:
        log2 = lab.stores.log()
        models = ReadModels([TOY], lab.stores, lab.log)
        one, two = (projector(lab, "same", log=log, lease_s=10 * PATIENCE_S) for log in (lab.log, log2))
        await asyncio.gather(one.start(), two.start())
        events = [note(f"e{i}", f"t{i % 9}", f"n{i % 4}", i) for i in range(100)]
        positions = []
        for start in range(0, 100, 10):
            positions += await asyncio.to_thread(lab.archive, *events[start : start + 10])
            for partition in range(PARTITIONS):
                one.wake(partition)
                two.wake(partition)

        async def shared() -> bool:
            seen = await lab.log.read(partial(ownership.survey, generation="toy__g1"))
            counts = [list(seen.owners.values()).count(owner) for owner in seen.workers]
            return counts == [PARTITIONS // 2, PARTITIONS // 2]

        await until(shared)
        await until(partial(caught_up, models))
        await two.stop()

        async def alone() -> bool:
            seen = await lab.log.read(partial(ownership.survey, generation="toy__g1"))
            return set(seen.owners.values()) == {one.owner} and len(seen.owners) == PARTITIONS

        await until(alone)  # a planned hand-over does not wait for leases to expire
        more = [note(f"f{i}", f"t{i % 9}", f"n{i % 4}", i) for i in range(20)]
        positions += await asyncio.to_thread(lab.archive, *more)
        await until(partial(caught_up, models))
        await one.stop()
        log2.close()
        models.close()
        assert active_dump(lab) == reference(events + more, positions)

    asyncio.run(run())


def test_a_killed_projector_is_replaced(tmp_path: Path) -> None:
    """C2: the owner dies by SIGKILL in the middle; another one goes on from its checkpoints."""
    lab = lab_in(tmp_path)
    events = [note(f"e{i}", f"t{i % 9}", f"n{i % 4}", i) for i in range(200)]
    positions = lab.archive(*events)
    process = child(lab.stores)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    async def run() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        other = projector(lab, "other")
        await other.start()
        began = time.monotonic()
        await until(partial(caught_up, models))
        assert time.monotonic() - began < 40 * LEASE_S
        await other.stop()
        models.close()

    asyncio.run(run())
    assert active_dump(lab) == reference(events, positions)
    lab.log.close()


def test_sigterm_hands_over_cleanly(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    lab.archive(*(note(f"e{i}", f"t{i % 9}", "a", i) for i in range(50)))
    process = child(lab.stores)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stdout.close()
    seen = lab.log.read_now(partial(ownership.survey, generation="toy__g1"))
    assert (seen.owners, seen.workers) == ({}, frozenset())
    db = lab.stores.generation("toy__g1")
    owners = db.read_now(lambda conn: conn.exec_driver_sql("SELECT owner, unclean FROM checkpoints").all())
    assert set(owners) == {("", 0)}
    db.close()
    lab.log.close()


def parked(lab: Lab, generation: Database) -> list[Any]:
    """The dead letters, once the rest is folded."""
    there = lab.log.read_now(partial(generations.active, projection="toy")) is not None
    return generation.read_now(dead_letters.list_letters) if there and len(dump(generation)["notes"]) == 19 else []


def test_an_event_that_kills_the_process_is_parked_and_the_rest_goes_on(tmp_path: Path) -> None:
    """C7: event 7 ends the process each time that it is applied; the others, of all partitions, are applied."""
    lab = lab_in(tmp_path)
    lab.archive(*(note(f"e{i}", f"t{i}", "die" if i == 7 else "a", i) for i in range(1, 21)))
    db = lab.stores.generation("toy__g1")
    deaths, letters = 0, list[Any]()
    while not letters:
        process = child(lab.stores, TOY_DIES="1")
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and not (letters := parked(lab, db)):
                assert time.monotonic() < deadline, "it neither dies nor gets on"
                time.sleep(0.05)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            else:
                assert process.returncode == 9
                deaths += 1
                assert deaths <= 12
        finally:
            assert process.stdout is not None
            process.stdout.close()
    assert [(letter.event_id, letter.cause) for letter in letters] == [("e7", "killed")]
    assert len(dump(db)["notes"]) == 19
    assert 3 <= deaths <= 6
    db.close()
    lab.log.close()


def test_a_generation_of_other_code_is_left_alone_until_it_is_rebuilt(lab: Lab) -> None:
    """C42: the fold changed and with it the version; the old rows stay readable, marked stale."""

    async def run() -> None:
        lab.archive(note("e1", "t", "a", 1))
        models = ReadModels([TOY], lab.stores, lab.log)
        first = projector(lab, "first")
        await first.start()
        await until(partial(caught_up, models))
        await first.stop()
        newer = Projection("toy", 2, TOY.tables, TOY.handles, TOY.apply, TOY.names)
        newer_models = ReadModels([newer], lab.stores, lab.log)
        second = projector(lab, "second", newer)
        await second.start()
        lab.archive(note("e2", "t", "a", 2))
        await asyncio.sleep(0.3)
        (status,) = await newer_models.status()
        assert (status.state, status.lag_events) == ("stale", 1)
        assert second.stale == {"toy"}
        assert (await newer_models.read("toy", lambda conn: 1)).stale
        await asyncio.to_thread(rebuild, newer, lab.stores, lab.log)
        lab.archive(note("e3", "t", "a", 3))
        await until(partial(caught_up, newer_models))
        (status,) = await newer_models.status()
        assert (status.state, status.generation) == ("live", 2)
        await second.stop()
        models.close()
        newer_models.close()

    asyncio.run(run())


def test_a_projection_that_fails_for_now_is_paused_visibly_and_recovers(lab: Lab) -> None:
    ill = True

    def apply(recorded: Any, rows: Any) -> Any:
        if ill:
            raise OSError("the disk is away")
        return TOY.apply(recorded, rows)

    async def run() -> None:
        nonlocal ill
        weak = Projection("toy", 1, TOY.tables, TOY.handles, apply, TOY.names)
        models = ReadModels([weak], lab.stores, lab.log)
        one = projector(lab, "one", weak)
        await one.start()
        lab.archive(note("e1", "t", "a", 1))

        async def paused() -> bool:
            (status,) = await models.status()
            return status.state == "paused" and "the disk is away" in status.reason

        await until(paused)
        assert one.paused()
        ill = False
        await until(partial(caught_up, models))
        assert active_dump(lab)["dead_letters"] == []
        await one.stop()
        models.close()

    asyncio.run(run())


def test_a_swap_is_followed_at_once(lab: Lab) -> None:
    """Not at the next look at the registry: whoever publishes waits for what is folded into the new generation."""

    async def run() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        one = Projector([TOY], lab.stores, lab.log, "one", lease_ttl_s=480.0, poll_s=0.05, balance_s=120.0)
        await one.start()
        await asyncio.to_thread(lab.archive, note("e1", "t", "a"))
        await until(partial(caught_up, models))
        await asyncio.to_thread(rebuild, TOY, lab.stores, lab.log)
        await asyncio.to_thread(lab.archive, note("e2", "t", "a"))
        await until(partial(caught_up, models))
        await one.stop()
        models.close()

    asyncio.run(run())


def test_behind_is_healthy_and_stuck_is_told_with_its_owner(lab: Lab) -> None:
    """A slow fold gets on; one that hangs is stuck, though its owner renews its lease; who has left holds nothing."""
    hang, slow = threading.Event(), 0.01

    def apply(recorded: Any, rows: Any) -> Any:
        if recorded.event.id == "hang":
            hang.wait(60)
        time.sleep(slow)
        return TOY.apply(recorded, rows)

    async def run() -> None:
        weak = Projection("toy", 1, TOY.tables, TOY.handles, apply, TOY.names)
        models = ReadModels([weak], lab.stores, lab.log, stuck_after_s=5.0)

        async def state() -> Any:
            (status,) = await models.status()
            return status

        one = projector(lab, "one", weak)
        await one.start()
        backlog = [note(f"e{i}", "t", "a", i) for i in range(400)]
        await asyncio.to_thread(lab.archive, *backlog, received_ms=now_ms())

        async def seen_behind() -> bool:
            status = await state()
            moving = [each for each in status.partitions if each.lag_events]
            assert status.state != "stuck", status
            return status.state == "behind" and moving[0].events_per_s > 0 and status.eta_s is not None

        await until(seen_behind)
        await until(partial(caught_up, models))
        await asyncio.to_thread(lab.archive, note("hang", "t", "a", 1), received_ms=now_ms())

        async def seen_stuck() -> bool:
            return (await state()).state == "stuck"

        await until(seen_stuck)
        status = await state()
        assert f"partition {where('t')} stood still for" in status.reason and one.owner in status.reason
        assert [each.state for each in status.partitions].count("live") == PARTITIONS - 1
        hang.set()
        await until(partial(caught_up, models))
        await one.stop()
        status = await state()
        assert status.state == "unowned" and "refold worker --role projector" in status.reason
        models.close()

    asyncio.run(run())


def test_a_fenced_owner_takes_its_partition_over_again(lab: Lab) -> None:
    """A retry of dead letters fences the live owner, who goes on by itself with what the retry has written."""

    async def run() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        one = projector(lab, "one")
        await one.start()
        lab.archive(note("e1", "t", "poison"), note("e2", "u", "a", 1))
        await until(partial(caught_up, models))
        store = GenerationStore(TOY, lab.stores.generation("toy__g1"))
        left = dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/t")).left
        store.db.close()
        assert [letter.event_id for letter in left] == ["e1"]
        lab.archive(note("e3", "t", "a", 3), note("e4", "u", "a", 4))
        await until(partial(caught_up, models))
        (status,) = await models.status()
        assert (status.dead_letters, status.parked_keys) == (2, 1)
        await one.stop()
        models.close()

    asyncio.run(run())


def test_without_a_log_the_projector_says_what_to_do(stores: Stores) -> None:
    from events.archive.schema import metadata

    log = stores.log()
    log.write_now(metadata.create_all)
    with pytest.raises(SetupError, match="refold up"):
        asyncio.run(Projector([TOY], stores, log).start())
    log.close()
