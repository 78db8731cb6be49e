"""Two stores on one Redis: the first one has it, and nothing of one log ever enters the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from events.archive.archiver import Archiver
from events.archive.schema import log_config, metadata
from events.archive.store import log_id, open_log
from events.archive.watch import Watermarks
from events.database import Database, Stores
from events.errors import Fenced, SetupError, Transient
from events.event import Position
from events.log.identity import claim
from events.log.layout import ARCHIVED_CHANNEL, OWNER, keys_of
from events.log.scripts import Script
from events.log.tail import Rewound, read
from events.log.trim import trim
from events.publisher import Publisher
from tests.integration.log_world import World, event, in_world, positions, statuses

KEYS = keys_of(0)


def store_in(folder: Path) -> Database:
    db = Stores(f"sqlite:///{folder}").log()
    db.write_now(metadata.create_all)
    db.write_now(lambda conn: open_log(conn, 1, 0))
    return db


@asynccontextmanager
async def neighbour(world: World) -> AsyncIterator[World]:
    """Another store that was pointed at the same Redis; nothing of it is open yet."""
    db = store_in(world.server.directory.parent / "neighbour")
    try:
        yield replace(world, db=db)
    finally:
        db.close()


async def everything_in(world: World) -> dict[Any, Any]:
    return {key: await world.redis.dump(key) for key in await world.redis.keys("*")}


@in_world()
async def test_the_second_store_is_refused_and_changes_nothing(world: World) -> None:
    await world.log.append([event("a0"), event("a1")])
    async with neighbour(world) as other:
        before = await everything_in(world)
        said = (
            f"log of another store \\(log {world.log_id[:8]}, ours is {other.log_id[:8]}\\): point REDIS_URL elsewhere"
        )
        for _ in range(2):
            with pytest.raises(SetupError, match=said):
                await other.open()
        with pytest.raises(Fenced, match="holds the log of another store"):
            await other.log.append([event("b0")])
        assert await everything_in(world) == before
        assert await other.watermark() == Position(0, -1), "not even its own epochs move"
    assert await world.open() == Position(1, -1)
    assert statuses(await world.log.append([event("a1"), event("a2")])) == ["duplicate", "stored"]


@in_world()
async def test_of_two_that_start_at_the_same_moment_one_wins(world: World) -> None:
    async with neighbour(world) as other:
        for _ in range(20):
            await world.redis.flushall()
            answers = await asyncio.gather(
                *(claim(world.client(), store.log_id) for store in (world, other, world, other)), return_exceptions=True
            )
            winner = await world.redis.get(OWNER)
            losers = [isinstance(answer, SetupError) for answer in answers]
            assert losers == ([False, True] * 2 if winner == world.log_id.encode() else [True, False] * 2)


@in_world()
async def test_two_that_recover_at_the_same_moment_do_not_fight(world: World) -> None:
    async with neighbour(world) as other:
        for _ in range(5):
            await world.redis.flushall()
            answers = await asyncio.gather(world.open(), other.open(), return_exceptions=True)
            refused = [index for index, answer in enumerate(answers) if isinstance(answer, SetupError)]
            assert len(refused) == 1, answers
            loser, winner = ((world, other), (other, world))[refused[0]]
            assert statuses(await winner.log.append([event("mine")])) in (["stored"], ["duplicate"])
            with pytest.raises(Fenced, match="another store"):
                await loser.log.append([event("theirs")])


@in_world()
async def test_after_flushall_the_other_takes_over_and_the_old_one_reads_nothing_of_it(world: World) -> None:
    """The other log's entries follow the old reader's position without a gap: only the identity tells."""
    await world.log.append([event("a0"), event("a1")])
    mark = await world.archive_all()
    assert mark == Position(1, 1)
    await world.redis.flushall()
    async with neighbour(world) as other:
        await other.open()
        outcomes = await other.log.append([event(f"b{n}") for n in range(200)])
        assert positions(outcomes)[2] == Position(1, 2), "what the old reader would take next"
        for block_ms in (0, 50):
            with pytest.raises(Rewound, match="another store"):
                await read(world.redis, world.log_id, 0, mark, block_ms=block_ms)
        assert await trim(world.redis, world.log_id, 0, Position(1, 199), 0) == 0
        assert await world.redis.xlen(KEYS.log) == 200
        assert await world.redis.hget(KEYS.meta, "archived") == b"-1"
        with pytest.raises(Fenced, match="another store"):
            await world.log.append([event("a2")])
        with pytest.raises(SetupError, match="another store"):
            await world.open()
        await other.archive_all()
        assert await other.archived_ids() == [f"b{n}" for n in range(200)]
        # a person flushes it for the first one again
        await world.redis.flushall()
        assert await world.open() == Position(2, -1)
        assert statuses(await world.log.append([event("a2")])) == ["stored"]
        await world.archive_all()
        assert await world.archived_ids() == ["a0", "a1", "a2"]
        with pytest.raises(SetupError):
            await other.open()


@in_world()
async def test_a_running_archiver_archives_nothing_of_the_other_log(world: World) -> None:
    """Both archivers run while Redis is flushed again and again; whoever gets it, each archive holds its own events."""
    async with neighbour(world) as other:
        stopping = asyncio.Event()

        async def keep(store: World) -> None:
            while not stopping.is_set():
                try:
                    await Archiver(store.client(), store.db, 1, batch=3, hot_window=0).run(stopping)
                except SetupError:
                    await asyncio.sleep(0.01)

        async def publish(store: World, name: str) -> None:
            publisher = Publisher(store.client(), store.db, 1, timeout_s=2)
            await publisher.start()
            number = 0
            while not stopping.is_set():
                number += 1
                try:
                    await publisher.publish_events([event(f"{name}{number}-{n}") for n in range(20)], ack="fast")
                except Transient:
                    await asyncio.sleep(0.005)
            await publisher.stop()

        async with asyncio.TaskGroup() as group:
            for store, name in ((world, "a"), (other, "b")):
                group.create_task(keep(store))
                group.create_task(publish(store, name))
            for _ in range(12):
                await asyncio.sleep(0.25)
                await world.redis.flushall()
            await asyncio.sleep(0.5)
            stopping.set()
        found = {name: await store.archived_ids() for store, name in ((world, "a"), (other, "b"))}
        assert [id_ for name, ids in found.items() for id_ in ids if not id_.startswith(name)] == []
        assert any(found.values())


@in_world()
async def test_the_owners_key_alone_is_gone(world: World) -> None:
    """Evicted, say: the partitions still tell whose log it is."""
    await world.redis.delete(OWNER)
    async with neighbour(world) as other:
        with pytest.raises(SetupError):
            await other.open()
        assert not await world.redis.exists(OWNER)
        assert await world.open() == Position(1, -1)
        assert await world.redis.get(OWNER) == world.log_id.encode()


@in_world()
async def test_something_else_under_the_owners_key_is_named(world: World) -> None:
    """Nothing heals that by itself: it may be somebody's, so a person has to look."""
    await world.redis.delete(OWNER)
    await world.redis.rpush(OWNER, "a list")
    with pytest.raises(SetupError, match=f"{OWNER}.*delete it"):
        await claim(world.redis, world.log_id)


@in_world()
async def test_a_partition_of_another_log_under_our_key(world: World) -> None:
    """A recovery that slept through a flush and another store's claim: its script, too, looks whose partition it is."""
    async with neighbour(world) as other:
        answer = await Script("reopen").run(
            world.redis, KEYS, 7, b"\x80", b"\x80", 1, other.log_id, b"\x80", 7, "-", 5000
        )
        assert answer == [b"OTHER", world.log_id.encode()]
        await world.redis.set(OWNER, other.log_id)
        with pytest.raises(SetupError, match=f"log {world.log_id[:8]}, ours is {other.log_id[:8]}"):
            await other.open()
        assert await other.watermark() == Position(0, -1)


@in_world()
async def test_a_publisher_is_told_and_keeps_its_events(world: World) -> None:
    """Not the events are at fault: the answer is one that passes, at once, with what a person has to do."""
    async with neighbour(world) as other:
        publisher = Publisher(other.redis, other.db, 1, timeout_s=110)
        async with asyncio.timeout(60):
            with pytest.raises(Transient, match="point REDIS_URL elsewhere"):
                await publisher.publish_events([event("b0")])
            with pytest.raises(SetupError):
                await publisher.claim()


@in_world()
async def test_wake_ups_of_another_log_are_not_believed(world: World) -> None:
    """The databases of one server share its channels."""
    watermarks = Watermarks(world.redis, world.db)
    watermarks.start()
    while not (await world.redis.pubsub_numsub(ARCHIVED_CHANNEL))[0][1]:  # noqa: ASYNC110  Redis tells no other way
        await asyncio.sleep(0.01)
    await world.redis.publish(ARCHIVED_CHANNEL, f"0 1-7 {'0' * 32}")
    await world.redis.publish(ARCHIVED_CHANNEL, f"0 1-5 {world.log_id}")
    async with asyncio.timeout(60):
        while watermarks.seen(0) != Position(1, 5):
            assert watermarks.seen(0) < Position(1, 5)
            await asyncio.sleep(0.01)
    await watermarks.stop()


@in_world()
async def test_a_log_from_before_logs_had_an_identity(world: World) -> None:
    """It gets one when it is opened, and what Redis still holds of it goes over."""
    await world.log.append([event("a0"), event("a1")])
    await world.db.write(lambda conn: conn.execute(delete(log_config).where(log_config.c.name == "log_id")))
    with pytest.raises(SetupError, match="holds no log yet"):
        await world.open()
    await world.redis.delete(OWNER)
    await world.redis.hdel(KEYS.meta, "log")
    await world.db.write(lambda conn: open_log(conn, 1, 0))
    assert await world.open() == Position(2, -1)
    assert statuses(await world.log.append([event("a1"), event("a2")])) == ["duplicate", "stored"]
    assert await world.redis.hget(KEYS.meta, "log") == world.log_id.encode()


def test_an_identity_stays(tmp_path: Path) -> None:
    first, second = store_in(tmp_path / "one"), store_in(tmp_path / "two")
    identity = first.read_now(log_id)
    assert len(identity) == 32
    assert second.read_now(log_id) != identity
    for db in (first, store_in(tmp_path / "one")):
        assert db.read_now(log_id) == identity
        db.close()
    second.close()
