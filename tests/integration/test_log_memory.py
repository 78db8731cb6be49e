"""Redis holds what is hot, whoever reads slowly or not at all; what is not archived stays, and publishing waits."""

from __future__ import annotations

import asyncio
import os

import pytest

from events.archive.archiver import Archiver
from events.errors import LogFull, Transient
from events.event import START
from events.log.layout import keys_of
from events.log.recovery import open_partition
from tests.integration.log_world import World, event, in_world, statuses

KEYS = keys_of(0)
WINDOW, LIMIT, HOT = 2_000, 8_000, 1_000
EVENTS = int(os.environ.get("REFOLD_MEMORY_EVENTS", "30000"))
"""How many events flow; memory must not depend on it."""
CALL = 1_000


async def used(world: World) -> int:
    """Bytes that the partition takes in Redis."""
    return sum([int(await world.redis.memory_usage(key, samples=0) or 0) for key in KEYS])


async def entries(world: World) -> int:
    return sum([await world.redis.hlen(key) for key in (KEYS.seen_a, KEYS.seen_b)])


@pytest.mark.timeout(300)
@in_world(window=WINDOW, limit=LIMIT)
async def test_memory_does_not_grow_while_nobody_folds(world: World) -> None:
    """A stopped projection pins nothing: it finds everything in the archive when it is back."""
    stopping = asyncio.Event()
    archiver = Archiver(world.redis, world.db, 1, hot_window=HOT)
    archiving = asyncio.create_task(archiver.run(stopping))
    first_bytes = 0.0
    for number in range(0, EVENTS, CALL):
        await publish(world, number)
        held = await world.redis.xlen(KEYS.log) + await entries(world)
        bytes_each = await used(world) / held
        first_bytes = first_bytes or bytes_each
        assert held <= 3 * (LIMIT + 2 * CALL), "the stream, and two hashes of ids"
        assert bytes_each <= 2.5 * first_bytes, "it depends on what is held, not on how much there was"
    await archived(world, EVENTS)
    stopping.set()
    await archiving
    assert await world.redis.xlen(KEYS.log) <= HOT + 200, "Redis removes whole nodes, so some more may stay"
    mark, found = START, 0
    while rows := await world.archive.read(0, mark, 10_000):
        mark, found = rows[-1].position, found + len(rows)
    assert found == EVENTS


async def archived(world: World, count: int) -> None:
    """Wait until the archive has so many; the test's own time limit ends it."""
    have = -1
    while have < count - 1:
        have = (await world.watermark()).n
        await asyncio.sleep(0.01)


async def publish(world: World, number: int) -> None:
    """A batch of events; when the log is full, again, as a publisher does."""
    batch = [event(f"e{number + i}", content=f"{'x' * 200}") for i in range(CALL)]
    while True:
        try:
            assert set(statuses(await world.log.append(batch))) <= {"stored", "duplicate"}
            return
        except LogFull:
            await asyncio.sleep(0.01)


@in_world(window=100, limit=300)
async def test_without_an_archiver_nothing_is_trimmed_and_publishers_are_told(world: World) -> None:
    """Back-pressure with a reason instead of loss; and it goes on by itself once somebody archives."""
    appended = 0

    async def publish_on() -> None:
        nonlocal appended
        while True:
            await world.log.append([event(f"e{appended}")])
            appended += 1

    with pytest.raises(LogFull, match="publish again when the archiver has caught up"):
        await publish_on()
    assert await world.redis.xlen(KEYS.log) == appended
    assert await world.watermark() == (1, -1)
    await world.archive_all()
    assert await world.redis.xlen(KEYS.log) == 0
    assert statuses(await world.log.append([event(f"e{appended}")])) == ["stored"]
    assert len(await world.archived_ids()) == appended


@in_world()
async def test_at_its_memory_limit_redis_is_emptied_by_the_archiver(world: World) -> None:
    """Publishers are told that it passes, and it does: archiving and trimming need no memory that is not there."""
    await world.log.append([event(f"e{i}", content="x" * 1000) for i in range(3000)])
    limit = int((await world.redis.info("memory"))["used_memory"]) - 1
    await world.redis.config_set("maxmemory", limit)
    with pytest.raises(Transient, match="fails for now"):
        await world.log.append([event("one more")])
    await world.archive_all()
    assert statuses(await world.log.append([event("one more")])) == ["stored"]
    assert await world.redis.xlen(KEYS.log) < 3000


@in_world()
async def test_at_its_memory_limit_the_log_is_opened_again(world: World) -> None:
    """Recovery ends the epoch in SQL first: were Redis to refuse what follows, each try would end another one."""
    await world.log.append([event("a")])
    await world.archive_all(keep=100)
    await world.log.append([event("b")])
    world.server.restart()
    await world.redis.config_set("maxmemory", 1)
    assert await open_partition(world.redis, world.db, 0) == (2, -1)
    await world.redis.config_set("maxmemory", 0)
    assert statuses(await world.log.append([event("b"), event("c")])) == ["duplicate", "stored"]
