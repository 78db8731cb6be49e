"""Trimming: never past the archive, never into the hot window, however many entries there are."""

from __future__ import annotations

from events.event import Position
from events.log.layout import keys_of
from events.log.trim import trim
from tests.integration.log_world import World, event, in_each_world

KEYS = keys_of(0)
NODE = 100
"""Entries of one stream node (the server's default): what approximate trimming leaves at most."""


@in_each_world()
async def test_up_to_the_watermark_and_no_further(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(1000)])
    await trim(world.redis, world.log_id, 0, Position(1, 499), 0)
    assert 500 <= await world.redis.xlen(KEYS.log) < 500 + NODE
    assert await world.redis.hget(KEYS.meta, "archived") == b"499"


@in_each_world()
async def test_the_hot_window_stays(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(1000)])
    await trim(world.redis, world.log_id, 0, Position(1, 999), 300)
    assert 300 <= await world.redis.xlen(KEYS.log) < 300 + NODE
    assert await trim(world.redis, world.log_id, 0, Position(1, 999), 5000) == 0


@in_each_world()
async def test_more_than_one_call_can_remove(world: World) -> None:
    for start in range(0, 25_000, 1000):
        await world.log.append([event(f"e{i}") for i in range(start, start + 1000)])
    assert await trim(world.redis, world.log_id, 0, Position(1, 24_999), 0) > 24_800
    assert await world.redis.xlen(KEYS.log) < NODE


@in_each_world()
async def test_numbers_go_on_after_everything_was_trimmed(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(NODE)])
    await world.redis.xtrim(KEYS.log, maxlen=0, approximate=False)
    (outcome,) = await world.log.append([event("next")])
    assert outcome.position == Position(1, NODE)


@in_each_world()
async def test_an_old_watermark_changes_nothing(world: World) -> None:
    """A sleeping archiver wakes up: of this epoch it is behind, of another epoch it means nothing."""
    await world.log.append([event(f"e{i}") for i in range(300)])
    await trim(world.redis, world.log_id, 0, Position(1, 199), 0)
    length = await world.redis.xlen(KEYS.log)
    assert await trim(world.redis, world.log_id, 0, Position(1, 99), 0) == 0
    assert await trim(world.redis, world.log_id, 0, Position(2, 299), 0) == 0
    assert await trim(world.redis, world.log_id, 0, Position(0, -1), 0) == 0
    assert await world.redis.xlen(KEYS.log) == length
    assert await world.redis.hget(KEYS.meta, "archived") == b"199"
