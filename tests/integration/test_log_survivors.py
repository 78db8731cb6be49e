"""What goes over into the next epoch: judged as append would judge it, by what the archive knows since."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.msgpack import encode as packb
from redis.asyncio import Redis

from events.archive.refusals import KeptRefusal, read_refusals
from events.archive.store import end_epoch, watermark
from events.database import Stores
from events.database_engines import sqlite
from events.door import admit
from events.errors import Fenced, Transient
from events.event import Position
from events.log import recovery
from events.log.layout import OWNER, keys_of
from events.log.recovery import open_partition, reopen
from events.log.scripts import Script
from events.log.survivors import Memory
from events.log.tail import read
from events.publisher import NotDurable, Publisher
from tests.integration.log_world import World, event, in_world, start, statuses
from tests.servers import redis_server

KEYS = keys_of(0)


async def in_log(world: World) -> list[str]:
    mark = await world.watermark()
    return [e.id for _, e in await read(world.redis, world.log_id, 0, Position(mark.epoch, -1), 10_000)]


async def rewound(world: World, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Keep what Redis has now, let things happen, and put that back: an old master that returns with its tail."""
    folder = world.server.directory
    world.server.kill()
    shutil.copytree(folder / "appendonlydir", folder / "older")
    shutil.rmtree(folder / "appendonlydir")
    world.server.restart()
    await meanwhile()
    world.server.kill()
    shutil.rmtree(folder / "appendonlydir")
    (folder / "older").rename(folder / "appendonlydir")
    world.server.restart()


async def refused(world: World) -> list[KeptRefusal]:
    return await world.db.read(lambda conn: read_refusals(conn, "default"))


@in_world()
async def test_a_start_that_another_run_has_won_since_is_refused_and_kept(world: World) -> None:
    """Two runs with one attempt: the old master had taken one, its successor the other, which was acknowledged."""
    await world.log.append([start("r1")])
    await world.archive_all(keep=100)
    await world.log.append([start("old", 2), event("of the old run", run="old")])

    async def meanwhile() -> None:
        await world.open()
        await world.log.append([start("new", 2), event("of the new run", run="new")])
        await world.archive_all()

    await rewound(world, meanwhile)
    await world.open()
    assert await in_log(world) == []
    kept = [one.refusal for one in await refused(world)]
    assert [one.event_id for one in kept] == ["of the old run", "start-old-2"]
    assert {(one.code, one.source) for one in kept} == {("not_carried_over", "recovery")}
    outcomes = await world.log.append([event("more", run="old"), event("on", run="new"), start("next", 3)])
    assert statuses(outcomes) == ["superseded", "stored", "stored"]


@in_world()
async def test_numbers_never_go_back(world: World) -> None:
    """The old master's tail ends long before where the run is by now: it changes nothing."""
    await world.log.append([start("r1", seq=1), event("a", seq=2)])
    await world.archive_all(keep=100)
    await world.log.append([event("lost", seq=3), event("free")])

    async def meanwhile() -> None:
        await world.open()
        await world.log.append([event("b", seq=3), event("c", seq=4)])
        await world.archive_all()

    await rewound(world, meanwhile)
    await world.open()
    assert await in_log(world) == ["free"]
    assert [kept.refusal.event_id for kept in await refused(world)] == ["lost"]
    outcomes = await world.log.append([event("again 4", seq=4), event("d", seq=5)])
    assert statuses(outcomes) == ["seq_conflict", "stored"]


@in_world()
async def test_what_follows_a_hole_waits_for_what_is_sent_again(world: World) -> None:
    """Else the number that was lost could never be stored any more, and its publisher is the one to send it."""
    await world.log.append([start("r1", seq=1), event("a", seq=2), event("b", seq=3)])
    await world.redis.xtrim(KEYS.log, minid="1-2", approximate=False)
    await world.open()
    assert await in_log(world) == []
    batch = [start("r1", seq=1), event("a", seq=2), event("b", seq=3)]
    assert statuses(await world.log.append(batch)) == ["stored"] * 3


@in_world()
async def test_who_lost_the_start_has_no_say_after_a_flush_either(world: World) -> None:
    """The log forgets it with Redis; the list of refused events tells, however long the start was."""
    publisher = Publisher(world.redis, world.db, 1, timeout_s=20)
    await publisher.start()

    async def publish(run: str, type_: str, **data: object) -> str:
        raw = {"id": f"{run} {type_} {data.get('attempt')}", "type": type_, "task": "t1", "run": run, "data": data}
        (outcome,) = await publisher.publish([raw], ack="fast")
        return outcome.code or outcome.status

    assert await publish("r1", "run.started", attempt=1) == "accepted"
    assert await publish("r2", "run.started", attempt=2) == "accepted"
    for loser, goal in (("short", "g"), ("long", "g" * 100_000)):
        assert await publish(loser, "run.started", attempt=2, goal=goal) == "attempt_conflict"
    await world.archive_all()
    await world.redis.flushall()
    await world.open()
    words = {"role": "assistant", "content": "I go on"}
    for loser in ("short", "long"):
        assert await publish(loser, "message.added", **words) == "superseded"
    assert await publish("never seen", "message.added", **words) == "accepted", "its start may come yet (C14)"
    assert await publish("short", "run.started", attempt=3) == "accepted"
    assert await publish("short", "message.added", **words) == "accepted"
    await world.redis.flushall()
    await world.open()
    await publisher.stop()


@in_world()
async def test_who_lost_among_the_survivors_has_lost(world: World) -> None:
    await world.log.append([start("r1"), start("winner", 2)])
    assert statuses(await world.log.append([start("loser", 2)])) == ["attempt_conflict"]
    world.server.restart()
    await world.open()
    assert await in_log(world) == ["start-r1-1", "start-winner-2"]
    assert statuses(await world.log.append([start("loser", 2), event("a", run="loser")])) == [
        "attempt_conflict",
        "superseded",
    ]


@in_world()
async def test_many_who_find_it_closed_do_not_undo_each_others_work(world: World) -> None:
    """One recovers, which takes a while when much has survived; the others wait. It ends one epoch, not dozens."""
    for i in range(20):
        await world.log.append([event(f"e{i}-{j}", task=f"t{i}", seq=j + 1) for j in range(500)])
    world.server.restart()
    clients = [world.client() for _ in range(8)]

    async def try_to_open(client: Redis) -> None:
        while True:
            try:
                await open_partition(client, world.db, 0)
                return
            except Transient:
                await asyncio.sleep(0.1)

    await asyncio.gather(*(try_to_open(client) for client in clients))
    mark = await world.watermark()
    assert mark.epoch <= 3
    assert await world.redis.xlen(KEYS.log) == 10_000
    assert await world.redis.exists(KEYS.turn) == 0


async def begin_to_copy(world: World, epoch: int) -> None:
    """The first step of a recovery whose process then dies."""
    mark = await world.watermark()
    await world.db.write(lambda conn: end_epoch(conn, 0, mark, epoch, reason="begun", now_ms=0))
    closed, _ = await Script("close").run(world.redis, KEYS[:4], epoch)
    ends = packb({str(mark.epoch): mark.n})
    answer = await Script("reopen").run(
        world.redis, KEYS, epoch, ends, packb({}), 0, world.log_id, packb({}), closed, "-", 500
    )
    assert answer[0] == b"STEP"
    assert answer[1].startswith(b"(")


@pytest.mark.parametrize("meanwhile", ["nothing", "an entry of somebody else", "the memory limit"])
def test_a_copy_that_was_broken_off_is_begun_anew(
    tmp_path: Path, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps the log is closed, and all that has survived still stands aside."""
    monkeypatch.setattr(recovery, "STEP", 500)

    @in_world()
    async def scenario(world: World) -> None:
        for i in range(2):
            await world.log.append([event(f"e{i}-{j}", seq=600 * i + j + 1) for j in range(600)])
        await begin_to_copy(world, 2)
        with pytest.raises(Fenced):
            await world.log.append([event("too early")])
        if meanwhile == "an entry of somebody else":
            await world.redis.xadd(KEYS.log, {"a stranger": "was here"})
        if meanwhile == "the memory limit":
            await world.redis.config_set("maxmemory", 1)
        mark = await world.open()
        await world.redis.config_set("maxmemory", 0)
        assert mark == Position(3, -1)
        assert await in_log(world) == [f"e{i}-{j}" for i in range(2) for j in range(600)]
        assert statuses(await world.log.append([event("e1-599", seq=1200), event("on", seq=1201)])) == [
            "duplicate",
            "stored",
        ]

    scenario(tmp_path)


@in_world()
async def test_a_log_that_is_looked_at_takes_nothing_more(world: World) -> None:
    """Closed first, then surveyed: an event that a stale server still takes cannot slip in between."""
    await world.log.append([event("a")])
    await world.archive_all(keep=100)
    mark = await world.watermark()
    await world.db.write(lambda conn: end_epoch(conn, 0, mark, 9, reason="elsewhere", now_ms=0))
    assert statuses(await world.log.append([event("b")])) == ["stored"], "the server knows of no other one"
    opened = (await reopen(world.redis, world.db, [0]))[0]
    assert (opened.watermark, opened.ended, opened.survivors) == (Position(10, -1), Position(9, -1), 1)
    assert statuses(await world.log.append([event("b"), event("c")])) == ["duplicate", "stored"]


@in_world()
async def test_a_server_that_was_overtaken_waits_while_the_other_one_archives(world: World) -> None:
    """Else two of them would take the log from each other without end."""
    await world.log.append([event("a")])
    await world.archive_all(keep=100)
    mark = await world.watermark()
    await world.db.write(lambda conn: end_epoch(conn, 0, mark, 2, reason="elsewhere", now_ms=0))

    async def go_on() -> None:
        await asyncio.sleep(0.5)
        await world.db.write(lambda conn: end_epoch(conn, 0, Position(2, -1), 3, reason="elsewhere", now_ms=0))

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on())
        with pytest.raises(Transient, match="goes on at another Redis"):
            await world.open()
    assert await world.watermark() == Position(3, -1)


@in_world()
async def test_after_a_restore_of_sql_the_hot_window_is_archived_again(world: World) -> None:
    """It was acknowledged: it goes over though numbers are missing that were trimmed before."""
    backup = world.server.directory.parent / "backup.db"
    await world.log.append([start("r1", seq=1), event("a", seq=2)])
    await world.archive_all(keep=100)
    mark = await world.watermark()
    with closing(sqlite.connect(backup.parent / "stores" / "log.db")) as live:
        live.execute("VACUUM INTO ?", [str(backup)])
    await world.log.append([event("b", seq=3), event("c", seq=4), event("d", seq=5)])
    await world.archive_all(keep=100)
    await world.redis.xtrim(KEYS.log, minid="1-3", approximate=False)
    await world.log.append([event("e", seq=6)])
    stored = Stores(f"sqlite:///{backup.parent}/restored")
    stored.directory.mkdir()
    shutil.move(backup, stored.directory / "log.db")
    db = stored.log()
    try:
        assert db.read_now(lambda conn: watermark(conn, 0)) == mark
        await open_partition(world.redis, db, 0)
        entries = await read(world.redis, world.log_id, 0, Position(2, -1), 10)
        assert [e.id for _, e in entries] == ["c", "d", "e"]
        assert db.read_now(lambda conn: read_refusals(conn, "default")) == []
    finally:
        db.close()


@in_world()
async def test_a_publisher_at_a_server_that_was_overtaken_does_not_spin(world: World) -> None:
    """What it appends there is void, and stays so until that server gets the log back or is left."""
    publisher = Publisher(world.redis, world.db, 1, timeout_s=2)
    mark = await world.watermark()
    await world.db.write(lambda conn: end_epoch(conn, 0, mark, 9, reason="elsewhere", now_ms=0))
    with pytest.raises(NotDurable):
        await publisher.publish_events([event("a")])
    calls: Any = await world.redis.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] < 20
    await world.open()
    patient = Publisher(world.redis, world.db, 1, timeout_s=60)
    waiting = asyncio.create_task(patient.publish_events([event("a")]))
    while not await world.archived_ids():
        await world.archive_all()
    (outcome,) = await waiting
    assert outcome.status in ("stored", "duplicate")


def test_a_replica_ends_no_epoch(tmp_path: Path) -> None:
    """It takes no writes: ending the epoch in SQL would close the log at its master for nothing."""

    @in_world()
    async def scenario(world: World) -> None:
        replica = redis_server(tmp_path / "replica")
        client = Redis.from_url(replica.url)
        try:
            await client.replicaof("127.0.0.1", str(urlsplit(world.server.url).port))
            await world.log.append([event("a")])
            await world.archive_all(keep=100)
            copied = 0
            while copied < 2:
                copied = await client.exists(OWNER, KEYS.log)
                await asyncio.sleep(0.02)
            before = await world.watermark()
            with pytest.raises(Fenced):
                await world.appender(client).append([event("b")])
            with pytest.raises(Transient, match="follows another one"):
                await open_partition(client, world.db, 0)
            assert await world.watermark() == before
            assert statuses(await world.log.append([event("b")])) == ["stored"], "the master goes on"
            await client.replicaof("NO", "ONE")
            await open_partition(client, world.db, 0)
            assert statuses(await world.appender(client).append([event("a"), event("c")])) == ["stored", "stored"]
        finally:
            await client.aclose()
            replica.stop()

    scenario(tmp_path)


def test_memory_judges_as_append_does() -> None:
    memory = Memory()
    memory.learn({("default", "t1"): [(1, "r1"), (2, "r2")]}, {("default", "t1", "r2"): 4})
    assert memory.judge(event("x", run="r1")) == "its run was superseded by run 'r2'"
    assert memory.judge(event("late", "tool.returned", run="r1", late=True)) == ""
    assert memory.judge(event("y", run="r2", seq=6)) == "seq 6 does not follow: 5 is expected"
    assert memory.judge(event("z", run="r2", seq=5)) == ""
    assert memory.judge(start("r2", 3)) == "its run is attempt 2 already"
    assert memory.judge(start("r3", 3)) == ""
    assert (
        memory.judge(admit({"id": "m", "type": "memory.proposed", "user": "u", "run": "r1", "data": {"content": "x"}}))
        == ""
    )
    assert memory.fields()["adefault\x1ft1"] == "3\x1fr3"
