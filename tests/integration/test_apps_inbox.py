"""The inbox from end to end: real Redis, real door, real archive; whatever form an entry has, and whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest
from faststream.redis import RedisBroker
from redis.asyncio import Redis

from events.archive.refusals import read_refusals
from events.errors import SetupError
from events.log.client import connect
from events.log.layout import OWNER
from services.apps.inbox import GROUP, STREAM, Inbox
from services.composition import Backend
from services.embedded.redis_server import RedisServer, start_redis
from services.roles import archiver, inbox
from services.settings import Settings


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    started = start_redis(tmp_path / "redis")
    yield started
    started.stop()


@pytest.fixture
def settings(tmp_path: Path, server: RedisServer) -> Settings:
    return Settings.read({}, data=tmp_path, redis_url=server.url, partitions=2, inbox_idle_s=0.5, inbox_batch=50)


@asynccontextmanager
async def backend_of(settings: Settings, *roles: str) -> AsyncIterator[Backend]:
    backend = await Backend.open(settings)
    try:
        for role in roles:
            backend.supervisor.start(role, {"archiver": archiver, "inbox": inbox}[role](backend))
        yield backend
        await backend.supervisor.stop(["inbox"])
    finally:
        await backend.close()


async def reached(condition: Callable[[], Coroutine[Any, Any, bool]], timeout_s: float = 60) -> None:
    deadline = monotonic() + timeout_s
    while not await condition():
        assert monotonic() < deadline, "not reached in time"
        await asyncio.sleep(0.05)


def step(n: int) -> dict[str, Any]:
    return {"id": f"e{n}", "type": "step.started", "run": "r1", "data": {"step": f"s{n}"}}


def flat(raw: dict[str, Any]) -> dict[Any, Any]:
    return {**raw, "data": orjson.dumps(raw["data"])}


async def archived(backend: Backend) -> list[str]:
    return [a.event().id for a in await backend.archive.run_events("default", "r1") if a.verdict == "effective"]


def test_plain_xadd_json_and_a_faststream_publisher_end_in_the_archive(settings: Settings) -> None:
    async def scenario() -> None:
        redis = await connect(settings.redis_url)
        # before anything of Refold has started: nothing is skipped
        await redis.xadd(STREAM, flat(step(1)))
        await redis.xadd(STREAM, {"__data__": orjson.dumps(step(2))})
        async with backend_of(settings, "archiver", "inbox") as backend:
            async with RedisBroker(settings.redis_url) as broker:
                await broker.publish(step(3), stream=STREAM)
                await broker.publish([step(4), step(5)], stream=STREAM)

            async def all_there() -> bool:
                return sorted(await archived(backend)) == [f"e{n}" for n in range(1, 6)]

            await reached(all_there)
            await reached(lambda: is_empty(redis))
        await redis.aclose()

    asyncio.run(scenario())


async def is_empty(redis: Redis) -> bool:
    """Nothing is pending, and what was handled takes no memory."""
    pending = await redis.xpending(STREAM, GROUP)
    return bool(await redis.xlen(STREAM) == 0 and pending["pending"] == 0)


def test_bad_entries_are_kept_with_their_reason_and_harm_no_other(settings: Settings) -> None:
    """C23, C27: one batch of good and bad."""

    async def scenario() -> None:
        async with backend_of(settings, "archiver") as backend:
            redis = backend.redis
            bad: list[dict[Any, Any]] = [
                {"__data__": "{broken"},
                {"id": b"\xff", "type": "step.started"},
                {**flat(step(90)), "type": ""},
                {**flat(step(91)), "data": '{"score": NaN}', "type": "feedback.given"},
                {**flat(step(92)), "data": '{"step": "s", "order_id": 9999999999999999999999}'},
                {**flat(step(1)), "data": '{"step": "another"}'},
            ]
            await redis.xadd(STREAM, flat(step(1)))
            for entry in bad:
                await redis.xadd(STREAM, entry)
            await redis.xadd(STREAM, flat(step(2)))
            backend.supervisor.start("inbox", inbox(backend))
            await reached(lambda: is_empty_group(redis))
            assert sorted(await archived(backend)) == ["e1", "e2"]
            kept = [k.refusal for k in await backend.db.read(lambda conn: read_refusals(conn, "default"))]
            assert len(kept) == len(bad)
            assert {refusal.source for refusal in kept} == {"inbox"}
            assert all(refusal.reason and refusal.code and refusal.raw not in ("", '""') for refusal in kept)
            assert backend.supervisor.status["inbox"].restarts == 0

    asyncio.run(scenario())


async def is_empty_group(redis: Redis) -> bool:
    groups = await redis.xinfo_groups(STREAM)
    return bool(groups) and await is_empty(redis)


def test_what_a_dead_consumer_read_is_taken_over(settings: Settings) -> None:
    """C2: read by one that died, handled by another; its own next life takes it up at once."""

    async def scenario() -> None:
        async with backend_of(settings, "archiver") as backend:
            redis = backend.redis
            await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            for n in range(1, 6):
                await redis.xadd(STREAM, flat(step(n)))
            await redis.xreadgroup(GROUP, "dead", {STREAM: ">"}, count=3)
            await redis.xreadgroup(GROUP, "reborn", {STREAM: ">"}, count=1)
            reborn = Inbox(redis, settings.redis_url, backend.publisher, "reborn", 50, 0.5)
            await reborn.drain_own()
            assert await archived(backend) == ["e4"]
            backend.supervisor.start("inbox", reborn.run)

            async def all_there() -> bool:
                return sorted(await archived(backend)) == [f"e{n}" for n in range(1, 6)]

            await reached(all_there)
            await reached(lambda: is_empty(redis))

    asyncio.run(scenario())


def test_a_door_that_fails_acknowledges_nothing_and_is_tried_again(settings: Settings) -> None:
    """No archiver: nothing becomes durable, so nothing is acknowledged; with one, everything is there once."""

    async def scenario() -> None:
        impatient = replace(settings, publish_timeout_s=0.3)
        async with backend_of(impatient, "inbox") as backend:
            redis = backend.redis
            for n in range(1, 31):
                await redis.xadd(STREAM, flat(step(n)))

            async def failed() -> bool:
                return backend.supervisor.status["inbox"].restarts >= 2

            await reached(failed)
            assert await redis.xlen(STREAM) == 30
            backend.supervisor.start("archiver", archiver(backend))
            await reached(lambda: is_empty(redis))
            assert sorted(await archived(backend)) == sorted(f"e{n}" for n in range(1, 31))

    asyncio.run(scenario())


def test_flushall_stops_nothing_for_long(settings: Settings) -> None:
    """C3: FLUSHALL with connections kept; the group is gone, FastStream ends, the supervisor begins anew."""

    async def scenario() -> None:
        async with backend_of(settings, "archiver", "inbox") as backend:
            redis = backend.redis
            await redis.xadd(STREAM, flat(step(1)))

            async def first() -> bool:
                return await archived(backend) == ["e1"]

            await reached(first)
            await redis.flushall()
            for n in (2, 3, 4):
                await redis.xadd(STREAM, flat(step(n)))

            async def all_there() -> bool:
                return await archived(backend) == ["e1", "e2", "e3", "e4"]

            await reached(all_there, 30)
            assert backend.supervisor.status["inbox"].restarts >= 1

    asyncio.run(scenario())


def test_the_inbox_belongs_to_the_log_on_its_redis(settings: Settings, tmp_path: Path) -> None:
    """Another store has the Redis after a FLUSHALL: the first one's consumer takes nothing there, not even to refuse.

    It may have asked for entries before it learns of that: those are taken over from it.
    """
    second_settings = replace(settings, data=tmp_path / "second")

    async def scenario() -> None:
        async with backend_of(replace(second_settings, redis_url=settings.redis_url.replace("/0", "/1"))) as second:
            theirs = await second.archive.log_id()
        async with backend_of(settings, "inbox") as first:
            redis = first.redis
            with pytest.raises(SetupError, match="another store"):
                await Backend.open(second_settings)
            await reached(lambda: exists(redis, STREAM))
            async with redis.pipeline(transaction=True) as pipe:
                pipe.flushall()
                pipe.set(OWNER, theirs)
                pipe.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
                pipe.xadd(STREAM, flat(step(1)))
                pipe.xadd(STREAM, {"__data__": "{broken"})
                await pipe.execute()

            async def refused() -> bool:
                return "another store" in first.supervisor.status["inbox"].error

            await reached(refused)
            async with backend_of(second_settings, "archiver", "inbox") as second:

                async def taken() -> bool:
                    return await archived(second) == ["e1"] and await is_empty(redis)

                await reached(taken)
                assert len(await second.db.read(lambda conn: read_refusals(conn, "default"))) == 1
            assert await first.db.read(lambda conn: read_refusals(conn, "default")) == []
            assert await archived(first) == []

    asyncio.run(scenario())


async def exists(redis: Redis, key: str) -> bool:
    return bool(await redis.exists(key))


def test_two_consumers_take_each_entry_once(settings: Settings) -> None:
    async def scenario() -> None:
        async with backend_of(settings, "archiver", "inbox") as backend, backend_of(settings, "inbox") as other:
            redis = backend.redis
            async with redis.pipeline(transaction=False) as pipe:
                for n in range(400):
                    pipe.xadd(STREAM, flat({**step(n), "run": "r1"}))
                await pipe.execute()
            await reached(lambda: is_empty(redis))
            assert len(await backend.archive.run_events("default", "r1")) == 400
            assert other.supervisor.status["inbox"].restarts == 0

    asyncio.run(scenario())
