"""``refold restore``: an empty Redis knows again at once what the archive knows."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from events.archive.schema import metadata
from events.archive.store import open_log
from events.database import Stores
from events.errors import SetupError
from events.event import Position
from events.log.layout import OWNER, keys_of
from events.log.restore import adopt, examine, owner, restore
from services.cli.errors import CliError
from services.cli.main import app
from tests.integration.log_world import World, event, in_world, positions, start, statuses

KEYS = keys_of(0)
BATCH = [start("r1", seq=1), event("a", seq=2), start("r2", 2), event("b", run="r2", seq=1), event("free", task="t2")]


async def emptied(world: World) -> None:
    await world.log.append(BATCH)
    await world.archive_all()
    await world.redis.flushall()


@in_world()
async def test_what_was_archived_is_known_at_once(world: World) -> None:
    """Duplicates, conflicts, attempts and numbers are answered by Redis, with positions of the epoch before."""
    await emptied(world)
    (restored,) = await restore(world.redis, world.db, [0])
    assert (restored.opened.ended, restored.opened.watermark) == (Position(1, 4), Position(2, -1))
    assert restored.remembered == 5 + 1 + 2 + 2, "ids; the latest attempt; starts and numbers of two runs"
    outcomes = await world.log.append(
        [*BATCH, event("b", run="r2", seq=1, content="other"), event("c", run="r2", seq=3)]
    )
    assert statuses(outcomes) == ["duplicate"] * 5 + ["conflict", "seq_conflict"]
    assert positions(outcomes[:5]) == [Position(1, n) for n in range(5)]
    assert await world.redis.xlen(KEYS.log) == 0
    assert statuses(await world.log.append([event("c", run="r2", seq=2), event("z")])) == ["stored", "superseded"]


@in_world()
async def test_again_it_changes_nothing(world: World) -> None:
    await emptied(world)
    await restore(world.redis, world.db, [0])
    before = [await world.redis.hgetall(key) for key in KEYS[1:4]]
    (restored,) = await restore(world.redis, world.db, [0])
    assert (restored.opened.ended, restored.remembered) == (None, 0)
    assert [await world.redis.hgetall(key) for key in KEYS[1:4]] == before


@in_world()
async def test_a_look_changes_nothing(world: World) -> None:
    await emptied(world)
    (finding,) = await examine(world.redis, world.db, [0])
    assert (finding.trouble, finding.watermark, finding.remembered) == (
        "it was not opened on this Redis",
        Position(1, 4),
        0,
    )
    assert await world.redis.dbsize() == 0
    assert await world.watermark() == Position(1, 4)
    await restore(world.redis, world.db, [0])
    (finding,) = await examine(world.redis, world.db, [0])
    assert (finding.trouble, finding.remembered) == ("", 10)


@in_world(window=50)
async def test_what_the_log_learned_since_is_not_overwritten(world: World) -> None:
    """It runs while events flow: what is newer than the archive wins, and memory stays bounded."""
    await emptied(world)
    await world.open()
    await world.log.append(
        [event("b2", run="r2", seq=2), start("r3", 3), *[event(f"fill-{i}", task="t2") for i in range(40)]]
    )
    await restore(world.redis, world.db, [0], most=50)
    assert sum([await world.redis.hlen(key) for key in KEYS[2:4]]) <= 50
    outcomes = await world.log.append([event("b3", run="r2", seq=3), event("c", run="r3", seq=1), start("r4", 4)])
    assert statuses(outcomes) == ["superseded", "stored", "stored"]


@in_world()
async def test_it_may_run_beside_publishers(world: World) -> None:
    for i in range(30):
        await world.log.append([event(f"old-{i}-{j}", task=f"t{i}", run=f"r{i}", seq=j + 1) for j in range(100)])
    await world.archive_all()
    await world.redis.flushall()
    await world.open()

    async def publish() -> None:
        for j in range(100, 140):
            outcomes = await world.log.append(
                [event(f"new-{i}-{j}", task=f"t{i}", run=f"r{i}", seq=j + 1) for i in range(30)]
            )
            assert set(statuses(outcomes)) == {"stored"}

    async with asyncio.TaskGroup() as group:
        group.create_task(publish())
        restoring = group.create_task(restore(world.redis, world.db, [0]))
    assert restoring.result()[0].remembered >= 3000
    again = await world.log.append(
        [event("old-3-7", task="t3", run="r3", seq=8), event("new-3-139", task="t3", run="r3", seq=140)]
    )
    assert statuses(again) == ["duplicate", "duplicate"]


@in_world()
async def test_another_stores_log_is_left_alone_unless_it_is_adopted(
    world: World,
) -> None:
    """After a move to another store, a person says that the old log may go."""
    await world.log.append([event("theirs")])
    other = Stores(f"sqlite:///{world.server.directory}/other").log()
    try:
        other.write_now(metadata.create_all)
        other.write_now(lambda conn: open_log(conn, 2, 0))
        for refused in (examine(world.redis, other, [0, 1]), restore(world.redis, other, [0, 1])):
            with pytest.raises(SetupError, match="log of another store"):
                await refused
        assert await world.redis.xlen(KEYS.log) == 1
        await world.redis.set("refold:inbox", "stays")
        assert await adopt(world.redis, other) >= 4
        assert await owner(world.redis) == ""
        restored = await restore(world.redis, other, [0, 1])
        assert [one.opened.watermark for one in restored] == [Position(1, -1)] * 2
        assert await owner(world.redis) != world.log_id
        assert await adopt(world.redis, other) == 0
        assert await world.redis.exists(OWNER, "refold:inbox") == 2
    finally:
        other.close()


async def command(world: World, *options: str, store: str = "") -> tuple[int, str]:
    """``refold restore``, as somebody types it who sees Redis and the store: exit code, and what it says."""
    url = store or f"sqlite:///{world.server.directory.parent}/stores"
    environ = {"REDIS_URL": world.server.url, "REFOLD_DATABASE_URL": url}
    run = partial(CliRunner().invoke, app, ["restore", *options], env=environ)
    done = await asyncio.to_thread(run)
    if isinstance(done.exception, CliError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def told(done: tuple[int, str]) -> list[dict[str, Any]]:
    assert done[0] == 0, done[1]
    rows: list[dict[str, Any]] = json.loads(done[1])["partitions"]
    return rows


@in_world(partitions=2)
async def test_the_command_tells_what_it_found_and_did(world: World) -> None:
    await world.log.append(BATCH)
    marks = [await world.archive_all(partition) for partition in (0, 1)]
    await world.redis.flushall()
    looked = told(await command(world, "--dry-run", "--json"))
    assert [(row["open"], row["watermark"]) for row in looked] == [(False, str(mark)) for mark in marks]
    did = told(await command(world, "--json"))
    assert [(row["found"], row["ended"]) for row in did] == [
        ("it was not opened on this Redis", str(mark)) for mark in marks
    ]  # fmt: skip
    assert sum(row["remembered"] for row in did) == 10
    code, text = await command(world)
    assert (code, text.count("sound")) == (0, 2)
    assert set(statuses(await world.log.append(BATCH))) == {"duplicate"}


@in_world()
async def test_the_command_refuses_what_would_harm(world: World) -> None:
    await world.log.append([event("theirs")])
    assert (await command(world, "--dry-run", "--adopt"))[0] == 2
    code, text = await command(world, store=f"sqlite:///{world.server.directory}/nowhere")
    assert (code, "there is no log" in text) == (2, True)
    other = Stores(f"sqlite:///{world.server.directory}/other")
    db = other.log()
    db.write_now(metadata.create_all)
    db.write_now(lambda conn: open_log(conn, 1, 0))
    db.close()
    code, text = await command(world, store=other.url)
    assert (code, "log of another store" in text, "--adopt" in text) == (2, True, True)
    code, text = await command(world, "--adopt", store=other.url)
    assert (code, "keys of another store" in text) == (0, True)
