"""Erasing through Redis and the archive: what publishers are told, what the streams keep, an archiver that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from events.archive import erasing, queries, store
from events.archive.refusals import read_refusals
from events.archive.subjects import Subject
from events.database import Database
from events.errors import Refused
from events.event import Event, Position
from events.log import tail
from events.log.layout import keys_of
from services.erasing.asking import ask, events_of
from tests.redis_cluster import AnyServer
from tests.stack import PARTITIONS, Stack, event, raw_event, running_stack

WORD = "zebrafish"
OWN = Subject("default", "user", "u1")


def words(run: str, count: int, **names: Any) -> list[Event]:
    return [event(run, data={"role": "user", "content": WORD}, **names) for _ in range(count)]


def erasure() -> list[Event]:
    return events_of(OWN, "x", "", PARTITIONS)


async def bytes_in_redis(stack: Stack) -> bool:
    """Whether a stream, as it is stored, holds the word."""
    dumps = [await stack.redis.dump(keys_of(p).log) for p in range(PARTITIONS)]
    return any(WORD.encode() in dump for dump in dumps if dump)


async def until_no_bytes(stack: Stack) -> None:
    """The archiver trims a moment later; the test's own time limit ends this."""
    while await bytes_in_redis(stack):  # noqa: ASYNC110 - nobody tells the test
        await asyncio.sleep(0.02)


def test_the_words_are_gone_from_archive_and_redis_and_do_not_come_back(server: AnyServer, log_db: Database) -> None:
    """A publisher whose event is erased as it comes is told so: nothing is taken and then dropped."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            publish = stack.publisher.publish_events
            first = words("r1", 30, user="u1")
            await publish([*first, *words("r2", 3, user="u2")])
            assert await bytes_in_redis(stack)
            await ask(stack.publisher, erasure())
            assert WORD in str([a.event() for a in stack.archived() if a.event().user == "u2"])
            assert WORD not in str([a.event() for a in stack.archived() if a.event().user == "u1"])
            late, again, other = await publish([*words("r1", 1), first[0], *words("r2", 1, user="u2")])
            assert [(o.status, o.code) for o in (late, again, other)] == [
                ("refused", "erased"), ("refused", "erased"), ("stored", ""),
            ]  # fmt: skip
            refused = await stack.publisher.publish([raw_event("", "scope.erased", data={
                "level": "user", "subject": "u2", "partition": 0})])  # fmt: skip
            assert (refused[0].status, refused[0].code) == ("refused", "not_yours")
            with pytest.raises(Refused):
                await ask(stack.publisher, events_of(OWN._replace(name="u2"), "x", "", PARTITIONS))

    asyncio.run(main())


def test_what_is_refused_of_an_erased_run_is_not_kept(server: AnyServer, log_db: Database) -> None:
    """Neither at the door nor by the log; whoever publishes it is told all the same."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            of_run: dict[str, Any] = {"user": "u1", "task": "t1", "data": {"role": "user", "content": WORD}}
            start = raw_event("r1", "run.started", user="u1", task="t1", data={"goal": WORD})
            await stack.publisher.publish([start])
            await ask(stack.publisher, erasure())
            for run, kept in (("r1", 0), ("\ud800", 2), ("r2", 4)):
                outcomes = await stack.publisher.publish([
                    raw_event(run, seq=7, **of_run), raw_event(run, "tool.called", **of_run),
                ])  # fmt: skip
                assert [o.status for o in outcomes] == ["conflict", "refused"]
                assert len(await stack.db.read(lambda conn: read_refusals(conn, "default"))) == kept

    asyncio.run(main())


def test_redis_keeps_no_bytes_of_what_is_erased(server: AnyServer, log_db: Database) -> None:
    """Not even in the nodes of a stream, where a trimmed entry is only marked as gone."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish_events(words("r1", 130, user="u1"))
            await ask(stack.publisher, erasure())
            await until_no_bytes(stack)
            (outcome,) = await stack.publisher.publish_events([event("r9")])
            assert outcome.status == "stored"

    asyncio.run(main())


def test_an_archiver_that_dies_before_it_trims_is_followed_by_one_that_does(
    server: AnyServer, log_db: Database
) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish_events(words("r1", 5, user="u1"))
            await stack.archive_off()
            await stack.publisher.publish_events(erasure(), ack="fast")
            await archive_and_die(stack)
            assert await bytes_in_redis(stack)
            assert WORD not in str([a.event() for a in stack.archived()])
            stack.archive_on()
            await until_no_bytes(stack)

    asyncio.run(main())


async def archive_and_die(stack: Stack) -> None:
    """What an archiver does up to the commit, and no further."""
    log_id, marks = await stack.db.read(store.log_id), await stack.db.read(queries.read_watermarks)
    batches: dict[int, Sequence[store.Entry]] = {
        p: found for p in range(PARTITIONS) if (found := await tail.read(stack.redis, log_id, p, marks[p]))
    }

    def work(conn: Any) -> dict[int, Position]:
        for partition, entries in batches.items():
            store.archive_batch(conn, partition, marks[partition], entries, 0)
        return erasing.erase_archived(conn, batches, 0)

    assert len(await stack.db.write(work)) == PARTITIONS
