"""Opening a partition: the first time, and after Redis lost, replaced or mixed up what it held."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode as packb
from redis.asyncio import Redis

from events.archive.queries import read_epochs
from events.archive.store import archive_batch, end_epoch
from events.errors import Fenced, Transient
from events.event import Event, Position
from events.log import recovery
from events.log.layout import keys_of
from events.log.recovery import open_partition, open_partitions
from events.log.scripts import Script
from events.log.tail import ForeignEntry, read
from tests.integration.log_world import World, event, in_world, positions, start, statuses, world

KEYS = keys_of(0)


def events(*numbers: int) -> list[Event]:
    return [event(f"e{i}") for i in numbers]


async def in_log(world: World, epoch: int) -> list[str]:
    return [e.id for _, e in await read(world.redis, world.log_id, 0, Position(epoch, -1), 10_000)]


@in_world()
async def test_a_new_partition_opens_once(world: World) -> None:
    assert await world.open() == Position(1, -1)
    assert await world.open() == Position(1, -1)
    await world.log.append(events(0, 1))
    assert await world.open() == Position(1, -1)
    await world.archive_all()
    assert await world.open() == Position(1, 1)
    assert (await world.archive.epochs())[0] == {0: -1, 1: None}


@in_world()
async def test_flushall_then_three_more_events(world: World) -> None:
    """C3: refused, recovered without a restart; what was archived stays, what was not is sent again."""
    await world.log.append(events(0, 1, 2))
    await world.archive_all()
    await world.log.append(events(3))
    await world.redis.flushall()
    with pytest.raises(Fenced, match="not opened on this Redis"):
        await world.log.append(events(4))
    assert await world.redis.exists(*KEYS) == 0, "a fenced append writes nothing"
    assert await world.open() == Position(2, -1)
    outcomes = await world.log.append(events(3, 4, 5, 6))
    assert statuses(outcomes) == ["stored"] * 4
    assert positions(outcomes) == [Position(2, n) for n in range(4)]
    await world.archive_all()
    assert await world.archived_ids() == [f"e{i}" for i in range(7)]
    assert (await world.archive.epochs())[0] == {0: -1, 1: 2, 2: None}


@in_world()
async def test_what_was_archived_before_a_loss_is_known_after_it(world: World) -> None:
    """C3, C13: the new window is empty, so refusals and duplicates come from the archive."""
    batch = [start("r1", seq=1), event("a", seq=2)]
    await world.log.append(batch)
    await world.archive_all()
    await world.redis.flushall()
    await world.open()
    outcomes = await world.log.append([*batch, start("rival"), event("b", seq=4), event("c", seq=3)])
    assert statuses(outcomes) == ["duplicate", "duplicate", "attempt_conflict", "seq_conflict", "stored"]
    assert positions(outcomes[:2]) == [Position(1, 0), Position(1, 1)]


@in_world()
async def test_restart_with_the_file_loses_nothing_acknowledged(world: World) -> None:
    """Invariant 1: kill -9, and the entries behind the watermark go over into the new epoch, with all that is known."""
    await world.log.append([start("r1", seq=1), event("a", seq=2), event("free")])
    await world.archive_all(keep=1000)
    await world.log.append([event("b", seq=3), start("r2", 2), event("other", task="t2", run="x", seq=1)])
    world.server.restart()
    with pytest.raises(Fenced, match="restarted or replaced"):
        await world.log.append(events(9))
    assert await world.open() == Position(2, -1)
    assert await in_log(world, 2) == ["b", "start-r2-2", "other"]
    outcomes = await world.log.append(
        [
            event("b", seq=3),
            start("r2", 2),
            event("free", content="other"),
            event("zombie"),
            event("c", task="t2", run="x", seq=2),
            start("r3", 2),
        ]
    )
    assert statuses(outcomes) == ["duplicate", "duplicate", "conflict", "superseded", "stored", "attempt_conflict"]
    assert positions(outcomes[:2]) == [Position(2, 0), Position(2, 1)]
    await world.archive_all()
    assert await world.archived_ids() == ["start-r1-1", "a", "free", "b", "start-r2-2", "other", "c"]


@in_world()
async def test_restart_without_the_file(world: World) -> None:
    await world.log.append(events(0, 1))
    await world.archive_all()
    await world.log.append(events(2))
    world.server.restart(lose_everything=True)
    with pytest.raises(Fenced):
        await world.log.append(events(3))
    await world.open()
    assert statuses(await world.log.append(events(2, 3))) == ["stored", "stored"]
    await world.archive_all()
    assert await world.archived_ids() == ["e0", "e1", "e2", "e3"]


@in_world()
async def test_rewound_to_an_older_state(world: World) -> None:
    """A lagging replica takes over: numbers are not used twice, what the archive has is not appended twice."""
    folder = world.server.directory
    await world.log.append(events(0, 1))
    await world.archive_all()
    await world.log.append(events(2, 3))
    shutil.copytree(folder / "appendonlydir", folder / "older")
    await world.archive_all()
    await world.log.append(events(4, 5))
    world.server.kill()
    shutil.rmtree(folder / "appendonlydir")
    (folder / "older").rename(folder / "appendonlydir")
    world.server.restart()
    assert await world.open() == Position(2, -1)
    assert await in_log(world, 2) == []
    await world.log.append(events(4, 5, 6))
    await world.archive_all()
    assert await world.archived_ids() == [f"e{i}" for i in range(7)]


@in_world()
async def test_rewound_to_before_a_recovery(world: World) -> None:
    """What an earlier recovery carried over and the archive holds does not come back: nor do its old attempts."""
    folder = world.server.directory
    await world.log.append([start("r1", seq=1), event("a", seq=2), event("lost", task="t2", run="r")])
    world.server.kill()
    shutil.copytree(folder / "appendonlydir", folder / "older")
    world.server.restart()
    await world.open()
    before = await world.watermark()
    two = (await read(world.redis, world.log_id, 0, before))[:2]
    await world.db.write(lambda conn: archive_batch(conn, 0, before, two, 0))
    await world.log.append([event("b", seq=3), start("r2", 2)])
    await world.archive_all()
    world.server.kill()
    shutil.rmtree(folder / "appendonlydir")
    (folder / "older").rename(folder / "appendonlydir")
    world.server.restart()
    mark = await world.open()
    assert await in_log(world, mark.epoch) == []
    outcomes = await world.log.append([start("r3", 2), event("c", seq=4, run="r1"), start("r4", 3)])
    assert statuses(outcomes) == ["attempt_conflict", "superseded", "stored"]


@in_world()
async def test_sql_restored_from_a_backup_gets_what_redis_still_has(world: World) -> None:
    """Redis is epochs ahead of SQL: the next epoch is ahead of both, and nothing that Redis holds is lost."""
    await world.redis.hset(KEYS.meta, "epoch", "7")
    await world.log.append(events(0, 1, 2))
    assert await world.open() == Position(8, -1)
    assert await in_log(world, 8) == ["e0", "e1", "e2"]


@in_world()
async def test_killed_between_sql_and_redis(world: World) -> None:
    """Run again, recovery ends the epoch that never began, and finds the survivors where they were."""
    await world.log.append(events(0, 1))
    await world.archive_all(keep=1000)
    await world.log.append(events(2, 3))
    await world.db.write(lambda conn: end_epoch(conn, 0, Position(1, 1), 2, reason="killed", now_ms=0))
    assert await world.open() == Position(3, -1)
    assert await in_log(world, 3) == ["e2", "e3"]
    assert (await world.archive.epochs())[0] == {0: -1, 1: 1, 2: -1, 3: None}


@in_world()
async def test_redis_away_in_the_middle_of_a_recovery(world: World) -> None:
    await world.log.append(events(0))
    await world.redis.flushall()
    world.server.kill()
    with pytest.raises(Transient):
        await world.open()
    world.server.restart()
    await world.open()
    assert statuses(await world.log.append(events(0))) == ["stored"]


@in_world()
async def test_many_recover_at_once(world: World) -> None:
    """Whoever is last finds a sound partition; survivors are carried over once."""
    await world.log.append(events(*range(50)))
    world.server.restart()
    clients = [world.client() for _ in range(8)]
    await asyncio.gather(*(open_partition(client, world.db, 0) for client in clients))
    mark = await world.watermark()
    assert await in_log(world, mark.epoch) == [f"e{i}" for i in range(50)]
    assert await world.open() == mark
    assert statuses(await world.log.append(events(49, 50))) == ["duplicate", "stored"]


class Interrupted(Redis):
    """A client before whose nth command something else happens."""

    left = -1
    meanwhile: Callable[[], Awaitable[object]]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == -1:
            await self.meanwhile()
        return await super().execute_command(*args, **options)


@in_world()
async def test_another_recovery_at_each_moment_of_a_recovery(world: World) -> None:
    """Whatever one of them is about to look at, the other one has just put aside: never an error of Redis itself."""
    client = Interrupted.from_url(world.server.url)
    world.clients.append(client)

    async def rival() -> None:
        await world.redis.unlink(KEYS.turn)  # as if the first one had slept for long
        await world.redis.hset(KEYS.meta, "server", "another")
        await world.open()

    client.meanwhile = rival
    for moment in range(12):
        await world.log.append(events(moment))
        await world.archive_all(keep=1000)
        await world.redis.hset(KEYS.meta, "server", "another")
        client.left = moment
        mark = await open_partition(client, world.db, 0)
        assert client.left < -1 or moment > 4, "a recovery has at least so many commands"
        assert mark <= await world.watermark(), "the other one may come when all is done"
        await world.open()
    assert await world.archived_ids() == [f"e{moment}" for moment in range(12)]


@in_world()
async def test_a_recovery_that_slept_between_sql_and_redis_changes_nothing(world: World) -> None:
    """Another one has opened a later epoch meanwhile, and events have come."""
    world.server.restart()
    await world.open()
    await world.log.append(events(0, 1))
    for slept in (1, 2):
        answer = await Script("reopen").run(
            world.redis, KEYS, slept, packb({}), packb({}), 1, world.log_id, packb({}), slept, "-", 5000
        )
        assert answer == [b"LATE", b"2"]
    assert await in_log(world, 2) == ["e0", "e1"]
    assert statuses(await world.log.append(events(1, 2))) == ["duplicate", "stored"]


@in_world()
async def test_a_sleeping_archiver_is_fenced(world: World) -> None:
    """It read before the loss and writes after the recovery: its positions are void."""
    await world.log.append(events(0, 1))
    before = await world.watermark()
    slept = await read(world.redis, world.log_id, 0, before)
    await world.redis.flushall()
    await world.open()
    await world.log.append(events(1, 2))
    with pytest.raises(Fenced):
        await world.db.write(lambda conn: archive_batch(conn, 0, before, slept, 0))
    await world.archive_all()
    assert await world.archived_ids() == ["e1", "e2"]


@in_world()
async def test_a_foreign_entry_with_the_servers_clock(world: World) -> None:
    """One plain ``XADD key *`` ends the numbering: fenced, set aside, and nothing of ours is lost."""
    await world.log.append([start("r1", seq=1), *events(0, 1)])
    await world.redis.xadd(KEYS.log, {"type": "message.added", "data": "{}"})
    with pytest.raises(Fenced, match="the log ends at"):
        await world.log.append(events(2))
    await world.open()
    assert await in_log(world, 2) == ["start-r1-1", "e0", "e1"]
    assert statuses(await world.log.append([event("x", seq=2), start("r1", seq=1)])) == ["stored", "duplicate"]
    ((_, foreign),) = await world.redis.xrange(KEYS.foreign)
    assert foreign[b"type"] == b"message.added"
    assert await world.redis.exists(KEYS.aside) == 0


@pytest.mark.parametrize("entry_id", ["1-*", "1-1000", "7-*"])
def test_a_foreign_entry_with_a_number_of_ours(tmp_path: Path, entry_id: str) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        await world.log.append(events(0, 1))
        await world.redis.xadd(KEYS.log, {"hello": "world"}, id=entry_id)
        with pytest.raises(Fenced):
            await world.log.append(events(2))
        await world.open()
        assert statuses(await world.log.append(events(2))) == ["stored"]
        assert await in_log(world, 2) == ["e0", "e1", "e2"]

    scenario(tmp_path)


@in_world()
async def test_another_type_of_value_in_the_way(world: World) -> None:
    """It is put aside, not deleted."""
    await world.redis.delete(KEYS.log, KEYS.meta)
    await world.redis.set(KEYS.log, "hello")
    await world.redis.set(KEYS.meta, "world")
    with pytest.raises(Fenced):
        await world.log.append(events(0))
    await world.open()
    assert await world.redis.get(KEYS.aside) == b"hello"
    assert statuses(await world.log.append(events(0))) == ["stored"]


@in_world()
async def test_clocks_and_older_ids_matter_nothing(world: World) -> None:
    """C4: times that go back and explicit older entry ids: every event is stored, numbered by the epoch alone."""
    noon = [{"id": f"p{i}", "time": f"2026-03-01T12:00:{30 - 5 * i:02d}Z"} for i in range(5)]
    sent = []
    for raw in noon:
        one = event(raw["id"])
        sent.append(Event(**{name: getattr(one, name) for name in Event.__struct_fields__} | {"time": raw["time"]}))
        sent.append(event(f"q{raw['id']}"))
        (first, second) = await world.log.append(sent[-2:])
        assert (first.status, second.status) == ("stored", "stored")
        with pytest.raises(Exception, match="equal or smaller"):
            await world.redis.xadd(KEYS.log, {"hello": "world"}, id="0-5")
    assert await in_log(world, 1) == [e.id for e in sent]


@in_world()
async def test_a_trimmed_gap_is_closed_by_recovery(world: World) -> None:
    """Somebody trimmed what was not archived yet: it is lost and its publishers unanswered, but the log goes on."""
    await world.log.append(events(0, 1, 2, 3))
    await world.redis.xtrim(KEYS.log, minid="1-2", approximate=False)
    await world.open()
    assert await in_log(world, 2) == ["e2", "e3"]
    assert statuses(await world.log.append(events(0, 1, 2))) == ["stored", "stored", "duplicate"]


@in_world(partitions=2)
async def test_partitions_recover_on_their_own(world: World) -> None:
    await world.log.append(events(0))
    lost, sound = (0, 1) if await world.redis.exists(keys_of(0).log) else (1, 0)
    await world.redis.delete(*keys_of(lost))
    assert await world.open(lost) == Position(2, -1)
    assert await world.open(sound) == Position(1, -1)
    epochs = await world.db.read(read_epochs)
    assert epochs[sound] == {0: -1, 1: None}


@in_world()
async def test_no_entry_however_odd_stops_recovery(world: World) -> None:
    """Entries that look like ours and are not, very wide ones, and values where recovery writes."""
    await world.log.append([start("r1", seq=1)])
    looks = {"id": "x", "type": "run.started", "org": "o", "time": "t", "key": "task/t", "digest": "d", "task": "t"}
    for data in ("not json", "[]", '{"attempt": {}}', '{"attempt": "x"}'):
        await world.redis.xadd(KEYS.log, {**looks, "run": "r", "id": f"odd {data}", "seq": "many", "data": data})
    await world.redis.xadd(KEYS.log, {f"f{i}": "v" for i in range(10_000)})
    await world.redis.set(KEYS.foreign, "in the way")
    await world.redis.hset(KEYS.meta, "next", "nonsense")
    with pytest.raises(Fenced):
        await world.log.append(events(0))
    await world.open()
    assert (await in_log(world, 2))[0] == "start-r1-1"
    assert statuses(await world.log.append([event("a", seq=2)])) == ["stored"]


@in_world()
async def test_an_entry_that_only_looks_like_ours_is_set_aside(world: World) -> None:
    """It has our fields and the next number, but no content that anybody could fold or show."""
    await world.log.append(events(0))
    looks = {"id": "x", "type": "note.written", "org": "default", "key": "task/t", "digest": "d", "task": "t"}
    for more in ({"time": "soon", "data": "{}"}, {"time": "2026-03-01T10:00:00Z", "data": "not json"}):
        await world.redis.xadd(KEYS.log, {**looks, **more}, id="1-*")
    with pytest.raises(ForeignEntry, match="1-1 is no event"):
        await world.archive_all()
    await world.open()
    await world.archive_all()
    assert await world.archived_ids() == ["e0"]
    assert await world.redis.xlen(KEYS.foreign) == 2


@in_world()
async def test_a_copy_that_broke_off_is_made_again(world: World) -> None:
    """Should the script ever end half-way, the old log still stands aside and wins over the unfinished copy."""
    await world.log.append(events(0, 1, 2))
    await world.redis.delete(KEYS.meta)
    await world.redis.rename(KEYS.log, KEYS.aside)
    await world.redis.xadd(KEYS.log, {"half": "a copy"})
    await world.open()
    assert await in_log(world, 2) == ["e0", "e1", "e2"]
    assert await world.redis.exists(KEYS.aside) == 0


@in_world(partitions=4)
async def test_a_new_log_and_a_clean_restart_are_one_line_each_and_no_warning(world: World) -> None:
    with logged() as said:
        await open_partitions(world.redis, world.db, range(4))
    assert said == []
    await world.log.append([event("a", task="t1"), event("b", task="t2"), event("c", task="t5")])
    await world.archive_all(keep=0)
    world.server.restart()
    with logged() as said:
        marks = await open_partitions(world.redis, world.db, range(4))
    assert {mark.epoch for mark in marks.values()} == {2}
    assert [(level, text.partition(":")[0]) for level, text in said] == [
        ("INFO", "log re-opened after a restart of Redis, nothing lost")
    ]
    assert ": 4 partitions" in said[0][1]
    await world.redis.flushall()
    with logged() as said:
        await open_partitions(world.redis, world.db, range(4))
    assert [level for level, _ in said] == ["WARNING"] * 4


@in_world()
async def test_a_restart_to_an_older_state_is_a_warning(world: World) -> None:
    folder = world.server.directory
    await world.log.append(events(0, 1))
    shutil.copytree(folder / "appendonlydir", folder / "older")
    await world.log.append(events(2))
    await world.archive_all(keep=1000)
    world.server.kill()
    shutil.rmtree(folder / "appendonlydir")
    (folder / "older").rename(folder / "appendonlydir")
    world.server.restart()
    with logged() as said:
        await world.open()
    assert [level for level, _ in said] == ["WARNING"]


def test_all_partitions_of_a_new_log_are_one_line(tmp_path: Path) -> None:
    async def happen() -> None:
        with logged() as said:
            async with world(tmp_path):
                pass
        assert said == [("INFO", "log opened: 1 partition")]

    asyncio.run(happen())


@contextmanager
def logged() -> Iterator[list[tuple[str, str]]]:
    """What recovery logs, from INFO on."""
    said: list[tuple[str, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append((record.levelname, record.getMessage()))

    handler, level = Keep(logging.INFO), recovery.logger.level
    recovery.logger.addHandler(handler)
    recovery.logger.setLevel(logging.INFO)
    try:
        yield said
    finally:
        recovery.logger.removeHandler(handler)
        recovery.logger.setLevel(level)
