"""Runs without a sign of life, on a real log: given up as lost, once, and only when silence proves something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from events.archive.schema import metadata
from events.database import Database, Stores
from events.event import Event
from events.log.log import WATCHDOG
from services.apps.reactors import DoorOutlet
from services.reactors import watchdog
from services.reactors.watchdog import Watchdog
from tests.redis_cluster import AnyServer
from tests.servers import redis_server
from tests.stack import Stack, raw_event, running_stack

LIMIT_S = 0.6
STEADY_S = 1.8
"""A limit that a run which beats every tenth of a second keeps, on a slow machine, too."""
LONG_S = 600.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[AnyServer]:
    server = redis_server(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    log = Stores(f"sqlite:///{tmp_path}/db").log()
    log.write_now(metadata.create_all)
    yield log
    log.close()


def within(redis: AnyServer, db: Database, work: Callable[[Stack], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with running_stack(redis, db) as stack:
            await work(stack)

    asyncio.run(scenario())


@asynccontextmanager
async def watched(stack: Stack, owner: str = "w1", limit_s: float = LIMIT_S, **more: Any) -> AsyncIterator[None]:
    """A watchdog at work as long as the block lasts."""
    outlet = DoorOutlet(stack.publisher, stack.db)
    dog = Watchdog(stack.db, stack.redis, outlet, owner, limit_s, **{"lease_s": 1.0, **more})
    task = asyncio.create_task(dog.run(asyncio.Event()))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def lost(stack: Stack) -> list[Event]:
    events = [archived.event() for archived in stack.archived() if archived.verdict == "effective"]
    return [event for event in events if event.source == WATCHDOG]


async def until_lost(stack: Stack, runs: list[str]) -> None:
    found: list[str] = []
    while found != sorted(runs):
        await asyncio.sleep(0.02)
        found = sorted(event.run for event in lost(stack))


async def starts(stack: Stack, *runs: str, **data: Any) -> None:
    await stack.publisher.publish([raw_event(run, "run.started", task=f"t-{run}", data=data) for run in runs])


async def says(stack: Stack, run: str, type_: str = "run.heartbeat", **data: Any) -> None:
    await stack.publisher.publish([raw_event(run, type_, task=f"t-{run}", data=data)])


def test_a_silent_run_is_lost_once_whoever_watches(redis: AnyServer, db: Database) -> None:
    async def work(stack: Stack) -> None:
        async with watched(stack, limit_s=STEADY_S), watched(stack, "w2", limit_s=STEADY_S):
            await asyncio.sleep(0.1)
            await starts(stack, "silent", "ended", "alive")
            await says(stack, "ended", "run.terminated", reason="end_turn")
            beating = asyncio.create_task(beat(stack, "alive"))
            await until_lost(stack, ["silent"])
            await asyncio.sleep(STEADY_S / 2)
            beating.cancel()
            assert [event.run for event in lost(stack)] == ["silent"]
        (event,) = lost(stack)
        assert (event.task, event.type, '"reason":"lost"' in event.data) == ("t-silent", "run.terminated", True)
        assert {archived.verdict for archived in stack.archived()} == {"effective"}

    within(redis, db, work)


async def beat(stack: Stack, run: str) -> None:
    while True:
        await says(stack, run)
        await asyncio.sleep(0.1)


def test_one_that_comes_back_is_watched_again(redis: AnyServer, db: Database) -> None:
    """By another process, too, which did not see it begin."""

    async def work(stack: Stack) -> None:
        async with watched(stack):
            await asyncio.sleep(0.1)
            await starts(stack, "r")
            await until_lost(stack, ["r"])
            await says(stack, "r", "message.added", role="user", content="here again")
            await until_lost(stack, ["r", "r"])
        await says(stack, "r", "message.added", role="user", content="and again")
        async with watched(stack, "w2"):
            await until_lost(stack, ["r", "r", "r"])

    within(redis, db, work)


def test_one_that_is_lost_again_and_comes_back_after_another_has_taken_over_is_watched(
    redis: AnyServer, db: Database
) -> None:
    """Who takes over reads the second loss together with what came before it, and knows that it is not for good."""

    async def work(stack: Stack) -> None:
        async with watched(stack, limit_s=LONG_S):
            await asyncio.sleep(0.3)
            await starts(stack, "r", "old")
            await says(stack, "r", "run.terminated", reason="lost")
            await says(stack, "r", "message.added", role="user", content="here again")
            await says(stack, "r", "run.terminated", reason="lost")
        async with watched(stack, "w2"):
            await until_lost(stack, ["old"])
            await says(stack, "r", "message.added", role="user", content="and again")
            await until_lost(stack, ["old", "r"])

    within(redis, db, work)


def test_a_run_is_given_up_though_its_partition_has_begun_another_epoch_since(redis: AnyServer, db: Database) -> None:
    """Nothing stands in that epoch, and nothing may ever."""

    async def work(stack: Stack) -> None:
        async with watched(stack, limit_s=STEADY_S):
            await asyncio.sleep(0.1)
            await starts(stack, "r")
            await stack.redis.flushall()
            await until_lost(stack, ["r"])

    within(redis, db, work)


def test_who_waits_for_a_person_or_for_a_long_call_is_not_lost(redis: AnyServer, db: Database) -> None:
    async def work(stack: Stack) -> None:
        async with watched(stack):
            await asyncio.sleep(0.1)
            await starts(stack, "asks", "calls", "called", "silent")
            await says(stack, "asks", "approval.requested", approval="a", action="pay")
            await says(stack, "calls", "tool.called", call_id="c", name="build", expected_s=LONG_S)
            await says(stack, "called", "tool.called", call_id="c", name="build", expected_s=LONG_S)
            await says(stack, "called", "tool.returned", call_id="c", result="ok")
            await until_lost(stack, ["silent", "called"])
            await asyncio.sleep(LIMIT_S)
            assert sorted(event.run for event in lost(stack)) == ["called", "silent"]
            await says(stack, "asks", "approval.resolved", approval="a", approved=True)
            await until_lost(stack, ["silent", "called", "asks"])

    within(redis, db, work)


def test_silence_proves_nothing_while_the_archive_lags(
    redis: AnyServer, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run said lies on the log, unread, for longer than its limit; then all runs get their time anew."""
    monkeypatch.setattr(watchdog, "STALLED_S", 0.3)

    async def work(stack: Stack) -> None:
        await starts(stack, "seen")
        async with watched(stack, limit_s=1.0):
            await asyncio.sleep(0.1)
            await stack.archive_off()
            unanswered = asyncio.create_task(says(stack, "seen"))
            await asyncio.sleep(1.5)
            assert lost(stack) == []
            stack.archive_on()
            await unanswered
            await says(stack, "seen", "run.terminated", reason="end_turn")
            await asyncio.sleep(1.2)
            assert lost(stack) == []

    within(redis, db, work)


def test_a_run_that_another_attempt_replaced_is_given_up_all_the_same(redis: AnyServer, db: Database) -> None:
    """Its agent was killed, and resumed at once: it, too, leaves its notes."""

    async def work(stack: Stack) -> None:
        async with watched(stack, limit_s=STEADY_S):
            await asyncio.sleep(0.1)
            for attempt, run in enumerate(("killed", "next"), 1):
                await stack.publisher.publish([raw_event(run, "run.started", task="t", data={"attempt": attempt})])
            beating = asyncio.create_task(beat_of(stack, "next", "t"))
            await until_lost(stack, ["killed"])
            beating.cancel()

    within(redis, db, work)


async def beat_of(stack: Stack, run: str, task: str) -> None:
    while True:
        await stack.publisher.publish([raw_event(run, "run.heartbeat", task=task, data={})])
        await asyncio.sleep(0.1)


def test_the_log_takes_no_end_of_a_run_that_has_spoken_meanwhile(redis: AnyServer, db: Database) -> None:
    """Whatever the watchdog had read when it judged: an event of the run between its judgement and the log counts."""

    async def work(stack: Stack) -> None:
        await starts(stack, "r", "other")
        (start,) = [archived for archived in stack.archived() if archived.event().run == "r"]

        async def give_up(seen_to: str, name: str) -> tuple[str, str]:
            data = {"reason": "lost", "seen_to": seen_to}
            raw = raw_event("r", "run.terminated", task="t-r", data=data) | {"id": name, "source": WATCHDOG}
            (outcome,) = await stack.publisher.publish([raw])
            return outcome.status, outcome.code

        at = str(start.position)
        await says(stack, "r")
        assert await give_up(at, "lost-1") == ("conflict", "speaks")
        last = max(a.position for a in stack.archived() if a.partition == start.partition)
        fed_back = raw_event("r", "feedback.given", task="t-r", data={"score": 1})
        await stack.publisher.publish([fed_back])  # about the run, and no sign of its life
        assert await give_up(f"{last.epoch + 1}-0", "lost-2") == ("conflict", "speaks")
        assert await give_up(str(last), "lost-3") == ("stored", "")
        assert await give_up(str(last), "lost-3") == ("duplicate", "")
        assert await give_up(at, "lost-4") == ("conflict", "speaks")
        (refused,) = await stack.publisher.publish(
            [raw_event("r", "run.terminated", task="t-r", data={"reason": "lost", "seen_to": "here"})]
        )
        assert refused.status == "refused" and "seen_to" in refused.field + refused.message

    within(redis, db, work)
