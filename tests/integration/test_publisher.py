"""Publishing: one answer an event, durable when it says so, whatever happens to the log in between."""

from __future__ import annotations

import asyncio

import pytest

from events.archive.refusals import read_refusals
from events.database import Database
from events.errors import Refused
from events.event import Position
from events.publisher import NotDurable, Publisher
from events.tokens import read_token
from tests.redis_cluster import AnyServer
from tests.stack import PARTITIONS, Stack, event, raw_event, running_stack


def refusals(stack: Stack, org: str = "default") -> list[tuple[str, str, str]]:
    kept = stack.db.read_now(lambda conn: read_refusals(conn, org))
    return [(k.refusal.event_id, k.refusal.code, k.refusal.source) for k in reversed(kept)]


def test_one_bad_event_harms_no_other(server: AnyServer, log_db: Database) -> None:
    """C23 and others of its kind: a refused event has its reason, is kept, and the rest of the batch is durable."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            good, worse = raw_event(), {"type": "message.added", "run": "r1"}
            naive = raw_event(time="2026-03-01T10:00:00")
            unread = Refused("not UTF-8", code="bad_encoding", raw=b"\xff\x00")
            outcomes = await stack.publisher.publish([naive, good, worse, unread], source="inbox")
            assert [o.status for o in outcomes] == ["refused", "stored", "refused", "refused"]
            assert (outcomes[0].id, outcomes[0].code, outcomes[0].field) == (naive["id"], "naive_time", "time")
            assert stack.ids() == [good["id"]]
            assert [code for _, code, _ in refusals(stack)] == ["naive_time", outcomes[2].code, "bad_encoding"]
            assert refusals(stack)[0] == (naive["id"], "naive_time", "inbox")
            assert refusals(stack, "another") == []

    asyncio.run(main())


def test_same_id_same_content_other_content_other_task(server: AnyServer, log_db: Database) -> None:
    """C13: ok, duplicate, conflict kept for inspection; under another task it is its own event."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:

            def call(tool: str, task: str = "t1") -> dict[str, object]:
                return raw_event(type_="tool.called", id="E1", task=task, data={"call_id": "c1", "name": tool})

            batch = [call("search"), call("search"), call("delete"), call("search", "t2")]
            together = await stack.publisher.publish(batch)
            assert [o.status for o in together] == ["stored", "duplicate", "conflict", "stored"]
            one_by_one = [(await stack.publisher.publish([raw]))[0] for raw in batch]
            assert [o.status for o in one_by_one] == ["duplicate", "duplicate", "conflict", "duplicate"]
            first = read_token(together[0].token)
            assert all(read_token(o.token) == first for o in (*together[:3], *one_by_one[:3]))
            assert refusals(stack) == [("E1", "conflict", "http")] * 2
            assert len(stack.archived()) == 2

    asyncio.run(main())


def test_durable_waits_for_the_archive_and_fast_does_not(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish_events([event()])
            await stack.archive_off()
            [fast] = await stack.publisher.publish([first := raw_event()], ack="fast")
            assert fast.status == "accepted"
            assert read_token(fast.token)
            with pytest.raises(NotDurable, match="same ids"):
                await Publisher(stack.redis, stack.db, PARTITIONS, timeout_s=0.5).publish([second := raw_event()])
            stack.archive_on()
            again = await stack.publisher.publish([first, second])
            assert [o.status for o in again] == ["duplicate", "duplicate"]
            assert len(stack.archived()) == 3

    asyncio.run(main())


def test_fast_says_duplicate_only_of_what_is_archived(server: AnyServer, log_db: Database) -> None:
    """An event that only stands on the log can still be lost: whoever sends it again must not be told otherwise."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish([first := raw_event()])
            [again] = await stack.publisher.publish([first], ack="fast")
            assert again.status == "duplicate"
            await stack.archive_off()
            await stack.publisher.publish([second := raw_event()], ack="fast")
            [again] = await stack.publisher.publish([second], ack="fast")
            assert again.status == "accepted"
            await stack.redis.flushall()
            stack.archive_on()
            [once_more] = await stack.publisher.publish([second])
            assert once_more.status == "stored"
            [again] = await stack.publisher.publish([second], ack="fast")
            assert again.status == "duplicate"

    asyncio.run(main())


def test_a_second_writer_of_a_run_gets_the_expected_number(server: AnyServer, log_db: Database) -> None:
    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            outcomes = await stack.publisher.publish([raw_event(seq=1), raw_event(seq=2), raw_event(seq=2)])
            assert [o.status for o in outcomes] == ["stored", "stored", "conflict"]
            assert (outcomes[2].code, outcomes[2].field) == ("seq_conflict", "seq")
            assert "3 is expected" in outcomes[2].message
            assert refusals(stack) == [(outcomes[2].id, "seq_conflict", "http")]

    asyncio.run(main())


def test_what_recovery_voided_is_appended_again_by_itself(server: AnyServer, log_db: Database) -> None:
    """C3: FLUSHALL before the archiver had them; the publisher is answered with positions that hold."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            before = [event(f"r{i}") for i in range(8)]
            await stack.publisher.publish_events(before)
            await stack.archive_off()
            lost = [event(f"r{i}") for i in range(8)]
            waiting = asyncio.create_task(stack.publisher.publish_events(lost))
            await stack.until_on_the_log(16)
            await stack.redis.flushall()
            stack.archive_on()
            after = await stack.publisher.publish_events([event()])
            outcomes = await waiting
            assert {o.status for o in (*outcomes, *after)} == {"stored"}
            assert len(stack.ids()) == 17
            assert len(stack.archived()) == 17
            positions = {(a.partition, a.position) for a in stack.archived()}
            assert all(set(read_token(o.token).items()) <= positions for o in outcomes)

    asyncio.run(main())


def test_what_survived_is_carried_over_and_stays_its_publishers(server: AnyServer, log_db: Database) -> None:
    """Redis restarts with its file before the archiver had the events: stored once, answered as stored."""

    async def main() -> None:
        async with running_stack(server, log_db) as stack:
            await stack.publisher.publish_events([event()])
            await stack.archive_off()
            waiting = asyncio.create_task(stack.publisher.publish_events([event(f"r{i}") for i in range(8)]))
            await stack.until_on_the_log(9)
            server.restart()
            stack.archive_on()
            assert {o.status for o in await waiting} == {"stored"}
            [late] = await stack.publisher.publish_events([event()])
            assert late.status == "stored"
            [position] = read_token(late.token).values()
            assert position > Position(1, -1)
            assert len(stack.archived()) == len(stack.ids()) == 10

    asyncio.run(main())
