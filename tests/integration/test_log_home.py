"""The log lives at one Redis: an empty one elsewhere gets it only when nobody archives at the first any more."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import update

from events.archive.archiver import Archiver
from events.archive.schema import leases
from events.clock import database_now_ms
from events.errors import SetupError, Transient
from events.event import Position
from events.log import home
from events.log.recovery import open_partition
from tests.instance import refold, running_instance
from tests.integration.log_world import World, event, in_each_world, in_world, statuses
from tests.servers import redis_server

ALIVE = "is alive at another Redis"


@asynccontextmanager
async def another_redis() -> AsyncIterator[Any]:
    """A client of an empty Redis beside the log's."""
    with tempfile.TemporaryDirectory(prefix="refold-another-") as folder:
        server = redis_server(Path(folder))
        try:
            async with Redis.from_url(server.url) as client:
                yield client
        finally:
            server.stop()


def holds_for(world: World, ms: int) -> None:
    """The last word of an archiver at the log's home holds so long from now."""
    world.db.write_now(
        lambda conn: conn.execute(
            update(leases).where(leases.c.name == "log/home").values(expires_ms=database_now_ms(conn) + ms)
        )
    )


@in_each_world()
async def test_an_empty_redis_is_refused_while_the_log_is_alive(world: World) -> None:
    await world.log.append([event("a0"), event("a1")])
    mark = await world.archive_all()
    async with another_redis() as client:
        with pytest.raises(Transient, match=ALIVE):
            await open_partition(client, world.db, 0)
        assert await world.watermark() == mark, "no epoch has ended"
        assert statuses(await world.log.append([event("a2")])) == ["stored"]


@in_world()
async def test_it_goes_on_at_a_new_redis_when_nobody_archives_at_the_first_one(world: World) -> None:
    await world.log.append([event("a0"), event("a1")])
    await world.archive_all()
    async with another_redis() as client:
        holds_for(world, 300)
        await home.refuse_second(client, world.db)
        assert await open_partition(client, world.db, 0) == Position(2, -1)
        assert statuses(await world.appender(client).append([event("a2")])) == ["stored"]


@in_each_world()
async def test_a_redis_that_was_emptied_where_it_is_goes_on_at_once(world: World) -> None:
    """C3."""
    await world.log.append([event("a0")])
    await world.archive_all()
    await world.redis.flushall()
    await home.refuse_second(world.redis, world.db)
    assert await world.open() == Position(2, -1)


@in_world()
async def test_a_redis_that_has_the_log_is_opened_wherever_it_is(world: World) -> None:
    """A replica that was promoted, say: it is no mistake, whoever else is alive."""
    await world.log.append([event("a0")])
    await world.archive_all()
    world.db.write_now(lambda conn: home.say(conn, frozenset(("elsewhere:6379/0",))))
    await asyncio.to_thread(world.server.restart)
    await home.refuse_second(world.redis, world.db)
    assert await world.open() == Position(2, -1)


@in_world()
async def test_a_word_from_before_the_clock_went_back_counts_for_nothing(world: World) -> None:
    async with another_redis() as client:
        holds_for(world, int(home.HELD_S * 2000))
        await home.refuse_second(client, world.db)
        assert await open_partition(client, world.db, 0) == Position(2, -1)


@in_world()
async def test_an_archiver_says_where_the_log_lives_as_long_as_it_works(world: World) -> None:
    """Idle, too; and whoever starts with another Redis is told as soon as it has said so once more."""
    stopping = asyncio.Event()
    archiving = asyncio.create_task(Archiver(world.redis, world.db, 1).run(stopping))
    async with another_redis() as client:
        with pytest.raises(SetupError, match=ALIVE):
            await home.refuse_second(client, world.db)
    stopping.set()
    await archiving


def test_a_second_instance_on_one_database_is_refused(tmp_path: Path) -> None:
    """In one line, that says what to do; the first one serves on."""
    database = f"sqlite:///{tmp_path}/shared"
    with running_instance(tmp_path / "one", REFOLD_DATABASE_URL=database) as first:
        first.stored(first.event("r1"))
        second = refold("up", "--data", str(tmp_path / "two"), "--http", "0", REFOLD_DATABASE_URL=database)
        assert second.returncode == 2, second.stderr.decode()
        assert ALIVE in second.stderr.decode().splitlines()[-1]
        first.stored(first.event("r1"))
