"""The archiver: every position, in order, once, whatever stops, doubles or loses it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from redis.asyncio import Redis

from events.archive.archiver import Archiver
from events.archive.reader import Archive, next_of
from events.archive.store import open_log
from events.archive.watch import Watermarks
from events.database import Database
from events.event import START, Position
from events.keys import partition_of
from events.log.client import live_node
from events.log.layout import ARCHIVED_CHANNEL, keys_of
from events.publisher import Publisher
from tests.redis_cluster import AnyServer, open_redis
from tests.stack import PARTITIONS, Stack, event, running_stack


async def check_dense(stack: Stack) -> None:
    """Every partition's archived positions follow each other, and end at its watermark."""
    archive = Archive(stack.db)
    epochs, marks = await archive.epochs(), await archive.watermarks()
    for partition in range(PARTITIONS):
        at = START
        for archived in await archive.read(partition, START, 1_000_000):
            assert archived.position == next_of(at, epochs[partition])
            at = archived.position
        assert next_of(at, epochs[partition]) == next_of(marks[partition], epochs[partition])
    assert await archive.count() == len(stack.archived())


def test_everything_is_archived_in_order_and_as_it_was(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db, batch=7) as stack:
            events = [event(f"r{i % 9}", user="ü", correlation="c") for i in range(200)]
            for start in range(0, 200, 50):
                await stack.publisher.publish_events(events[start : start + 50])
            await check_dense(stack)
            archived = {a.event().id: a.event() for a in stack.archived()}
            assert archived == {e.id: e for e in events}

    asyncio.run(main())


def test_one_wake_up_an_advance_tells_the_watermark(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack, (await live_node(stack.redis)).pubsub() as pubsub:
            await pubsub.subscribe(ARCHIVED_CHANNEL)
            await pubsub.get_message(timeout=60)
            await stack.publisher.publish_events([event("r1") for _ in range(5)])
            message = await pubsub.get_message(timeout=60)
            assert message is not None
            partition, position, log_id = message["data"].decode().split()
            assert (await Archive(stack.db).watermarks())[int(partition)] == Position.parse(position)
            assert log_id == await Archive(stack.db).log_id()
            assert await pubsub.get_message(timeout=0.3) is None

    asyncio.run(main())


def test_redis_is_trimmed_to_the_hot_window(server: AnyServer, log_db: Database) -> None:
    """C1: what is trimmed from Redis is in the archive."""

    async def main() -> None:
        async with running_stack(server, log_db, hot_window=10) as stack:
            for _ in range(6):
                await stack.publisher.publish_events([event("r1") for _ in range(300)])
            [partition] = {a.partition for a in stack.archived()}
            # Redis removes whole nodes, of 100 entries
            length = 1_800
            while length > 120:
                length = await stack.redis.xlen(keys_of(partition).log)
                await asyncio.sleep(0.02)
            assert int(await stack.redis.hget(keys_of(partition).meta, "archived") or -1) == 1_799
            assert len(stack.ids()) == 1_800

    asyncio.run(main())


def test_two_archivers_double_nothing(server: AnyServer, log_db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """And say so now and then, not each time that they meet."""

    async def main() -> None:
        async with running_stack(server, log_db, batch=20) as stack:
            second_db = Database(log_db.url, schema=log_db.schema)
            stopping = asyncio.Event()
            second = asyncio.create_task(Archiver(stack.redis, second_db, PARTITIONS, batch=13).run(stopping))
            events = [event(f"r{i % 11}") for i in range(2_000)]
            for start in range(0, 2_000, 100):
                await stack.publisher.publish_events(events[start : start + 100])
            stopping.set()
            await second
            second_db.close()
            assert stack.ids() == sorted(e.id for e in events)
            await check_dense(stack)

    with caplog.at_level(logging.INFO, "events.archive.archiver"):
        asyncio.run(main())
    assert sum("another archiver is at work" in record.message for record in caplog.records) <= 4


def test_a_stop_finishes_the_batch_in_hand_and_a_start_goes_on(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db, batch=10) as stack:
            events = [event(f"r{i % 5}") for i in range(500)]
            await stack.publisher.publish_events(events, ack="fast")
            await stack.archive_off()
            await check_dense(stack)
            stack.archive_on()
            await stack.until_archived(500)
            await check_dense(stack)

    asyncio.run(main())


def test_flushall_while_everything_runs(server: AnyServer, log_db: Database) -> None:
    """C3: FLUSHALL, then three more events: recovery without a restart, nothing durable lost or doubled."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            before = [event(f"r{i % 5}") for i in range(100)]
            await stack.publisher.publish_events(before)
            await stack.redis.flushall()
            after = [event(f"r{i}") for i in range(3)]
            outcomes = await stack.publisher.publish_events(after)
            assert {o.status for o in outcomes} == {"stored"}
            assert stack.ids() == sorted(e.id for e in before + after)
            await check_dense(stack)

    asyncio.run(main())


def test_redis_killed_and_back_with_and_without_its_file(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            events = [event(f"r{i % 5}") for i in range(90)]
            for round_, lose in enumerate((False, True, False)):
                await stack.publisher.publish_events(events[round_ * 30 : round_ * 30 + 30])
                server.kill()
                server.restart(lose_everything=lose)
            await stack.publisher.publish_events([last := event()])
            assert stack.ids() == sorted([e.id for e in events] + [last.id])
            await check_dense(stack)

    asyncio.run(main())


def test_more_partitions_than_connections(server: AnyServer, log_db: Database) -> None:
    """Opening, appending, reading, trimming and re-opening never take a connection a partition at once."""
    partitions = 150

    async def main() -> None:
        log_db.write_now(lambda conn: open_log(conn, partitions, 0))
        redis = await open_redis(server.url, max_connections=60)
        publisher = Publisher(redis, log_db, partitions)
        await publisher.start()
        stopping = asyncio.Event()
        archiving = asyncio.create_task(Archiver(redis, log_db, partitions).run(stopping))
        events = [event(f"r{i}") for i in range(600)]
        for part in (events[:300], events[300:]):
            assert {o.status for o in await publisher.publish_events(part)} == {"stored"}
            await redis.flushall()
        assert len({partition_of(e.org, e.key, partitions) for e in events}) > 100
        assert await Archive(log_db).count() == 600
        stopping.set()
        await asyncio.wait_for(archiving, 60)
        await publisher.stop()
        await redis.aclose()

    asyncio.run(main())


def test_an_idle_archiver_checks_all_partitions_in_turn(log_db: Database) -> None:
    archiver = Archiver(Redis(), log_db, 150)
    rounds = [archiver._some() for _ in range(3)]
    assert max(map(len, rounds)) <= 64
    assert {p for chosen in rounds for p in chosen} == set(range(150))
    assert Archiver(Redis(), log_db, 4)._some() == [0, 1, 2, 3]


def test_an_idle_archiver_does_not_spin(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish_events([event()])
            before = (await stack.redis.info("stats"))["total_commands_processed"]
            await asyncio.sleep(2)
            after = (await stack.redis.info("stats"))["total_commands_processed"]
            assert after - before < 80 * PARTITIONS  # those of the scripts count, too

    asyncio.run(main())


def test_wake_ups_may_fail_to_come(server: AnyServer, log_db: Database) -> None:
    """Who waits looks at SQL by itself; foreign messages on the channel do no harm."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.redis.publish(ARCHIVED_CHANNEL, "nonsense")
            deaf = Watermarks(stack.redis, log_db)
            await stack.publisher.publish_events([event("r1")])
            [archived] = stack.archived()
            assert await deaf.wait_for({archived.partition: archived.position}, 60)
            beyond = Position(archived.position.epoch, archived.position.n + 1)
            assert not await deaf.wait_for({archived.partition: beyond}, 0.3)

    asyncio.run(main())
