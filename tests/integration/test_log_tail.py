"""Reading the log from an exact position: what is there, what is missing, what is not ours."""

from __future__ import annotations

import asyncio
import time

import pytest

from events.event import START, Position
from events.log.layout import keys_of
from events.log.tail import ForeignEntry, LogBroken, Rewound, TrimmedGap, read
from tests.integration.log_world import World, event, in_each_world, in_world

KEYS = keys_of(0)
OPENED = Position(1, -1)


@in_each_world()
async def test_exactly_what_follows(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(10)])
    found = await read(world.redis, world.log_id, 0, Position(1, 3), 4)
    assert [p for p, _ in found] == [Position(1, n) for n in (4, 5, 6, 7)]
    assert [e.id for _, e in await read(world.redis, world.log_id, 0, Position(1, 8))] == ["e9"]
    assert await read(world.redis, world.log_id, 0, Position(1, 9)) == []


@in_each_world()
async def test_positions_are_numbers_not_text(world: World) -> None:
    """1-9 comes before 1-10."""
    await world.log.append([event(f"e{i}") for i in range(12)])
    assert [p.n for p, _ in await read(world.redis, world.log_id, 0, Position(1, 8))] == [9, 10, 11]


@in_each_world()
async def test_a_waiting_reader_wakes_up(world: World) -> None:
    waiting = asyncio.create_task(read(world.client(), world.log_id, 0, OPENED, block_ms=60_000))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    await world.log.append([event("e0")])
    assert [e.id for _, e in await waiting] == ["e0"]
    assert time.monotonic() - started < 30


@in_world()
async def test_waiting_is_shorter_than_the_sockets_patience(world: World) -> None:
    started = time.monotonic()
    # a wait as long as asked for would end with an error of the socket, or after a minute
    assert await read(world.client(socket_timeout=0.5), world.log_id, 0, OPENED, block_ms=60_000) == []
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols(tmp_path, protocol: int) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        await world.log.append([event("e0")])
        client = world.client(protocol=protocol)
        assert [e.id for _, e in await read(client, world.log_id, 0, OPENED)] == ["e0"]
        assert await read(client, world.log_id, 0, Position(1, 0), block_ms=10) == []

    scenario(tmp_path)


@in_each_world()
async def test_what_others_trimmed_is_a_gap(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(10)])
    await world.redis.xtrim(KEYS.log, minid="1-5", approximate=False)
    with pytest.raises(TrimmedGap, match="1-5 stands where 1-3"):
        await read(world.redis, world.log_id, 0, Position(1, 2))
    assert len(await read(world.redis, world.log_id, 0, Position(1, 4))) == 5
    await world.redis.xtrim(KEYS.log, maxlen=0, approximate=False)
    with pytest.raises(TrimmedGap, match="entries after 1-4 are missing"):
        await read(world.redis, world.log_id, 0, Position(1, 4))
    assert await read(world.redis, world.log_id, 0, Position(1, 9)) == []


@in_each_world()
async def test_a_deleted_entry_is_a_gap(world: World) -> None:
    await world.log.append([event(f"e{i}") for i in range(10)])
    await world.redis.xdel(KEYS.log, "1-5", "1-9")
    with pytest.raises(TrimmedGap):
        await read(world.redis, world.log_id, 0, Position(1, 2))
    with pytest.raises(TrimmedGap):
        await read(world.redis, world.log_id, 0, Position(1, 8))


@in_each_world()
async def test_flushall_neither_hangs_nor_drops_a_waiting_reader(world: World) -> None:
    """C3: connections stay open, so only looking tells."""
    await world.log.append([event(f"e{i}") for i in range(3)])

    async def wait() -> None:
        client = world.client()
        while True:
            assert await read(client, world.log_id, 0, Position(1, 2), block_ms=300) == []

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.05)
    await world.redis.flushall()
    with pytest.raises(Rewound, match="not opened on this Redis"):
        await waiting
    with pytest.raises(Rewound):
        await read(world.redis, world.log_id, 0, OPENED)


@in_world()
async def test_a_restart_is_noticed_while_idle(world: World) -> None:
    await world.log.append([event("e0")])
    world.server.restart()
    assert [e.id for _, e in await read(world.redis, world.log_id, 0, OPENED)] == ["e0"]
    with pytest.raises(Rewound, match="restarted or replaced"):
        await read(world.redis, world.log_id, 0, Position(1, 0))


@in_each_world()
async def test_positions_that_never_were(world: World) -> None:
    await world.log.append([event("e0")])
    for position in (Position(1, 7), Position(2, 0), Position(7, -1), START):
        with pytest.raises(Rewound):
            await read(world.redis, world.log_id, 0, position)


@in_each_world()
async def test_a_foreign_entry_is_named(world: World) -> None:
    await world.log.append([event("e0")])
    await world.redis.xadd(KEYS.log, {"hello": "world"}, id="1-*")
    with pytest.raises(ForeignEntry, match="1-1 is no event"):
        await read(world.redis, world.log_id, 0, OPENED)
    assert issubclass(ForeignEntry, LogBroken)
