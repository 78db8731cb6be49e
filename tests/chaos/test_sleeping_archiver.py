"""An archiver falls asleep with a batch in its hands; Redis is replaced, others archive; then it wakes and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from events.archive.schema import metadata
from events.database import Stores
from events.log.recovery import open_partitions
from tests.servers import redis_server
from tests.stack import PARTITIONS, Stack, raw_event, running_stack

COUNT = 40


@pytest.mark.chaos
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("moment", "store", "loses"),
    [
        ("read", "sqlite", True),
        ("read", "postgresql", False),
        ("within", "postgresql", True),
        ("committed", "sqlite", False),
        ("committed", "postgresql", True),
    ],
)
def test_sleeping_archiver(
    tmp_path: Path, moment: str, store: str, loses: bool, request: pytest.FixtureRequest
) -> None:
    """C9, invariant 5: what it had read counts only if its transaction did, and nothing is doubled or out of order.

    ``within`` its transaction it holds locks: PostgreSQL ends that after a while, and nobody waits for it for ever.
    """
    on = request.getfixturevalue("postgres").new_database() if store == "postgresql" else f"sqlite:///{tmp_path}/db"
    stores = Stores(on)

    async def scenario() -> None:
        server, db = redis_server(tmp_path / "redis"), stores.log()
        db.write_now(metadata.create_all)
        try:
            async with running_stack(server, db, timeout_s=60, archive=False) as stack:
                await open_partitions(stack.redis, db, range(PARTITIONS))
                await happen(stack, stores, moment, loses)
        finally:
            db.close()
            server.stop()

    asyncio.run(scenario())


async def happen(stack: Stack, stores: Stores, moment: str, loses: bool) -> None:
    first = [raw_event(f"r{i % 8}") for i in range(COUNT)]
    await stack.publisher.publish(first, ack="fast")
    sleeper = start_sleeper(moment, stack.server.url, stores.url)
    try:
        await asyncio.to_thread(os.waitid, os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        stack.server.restart(lose_everything=loses)
        stack.archive_on()
        # its publisher was not answered, so it sends the second half again, and goes on
        more = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        outcomes = await stack.publisher.publish([*first[COUNT // 2 :], *more])
        assert {outcome.status for outcome in outcomes} <= {"stored", "duplicate"}
        sleeper.send_signal(signal.SIGCONT)
        last = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        await stack.publisher.publish(last)
        await stack.archive_off()
        alone = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        await stack.publisher.publish(alone)
        sleeper.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(sleeper.wait, 60) == 0
    finally:
        if sleeper.poll() is None:
            sleeper.kill()
            sleeper.wait()
    took_effect = Counter(stack.ids())
    assert set(took_effect.values()) == {1}
    needed = {raw["id"] for raw in (*first[COUNT // 2 :], *more, *last, *alone)}
    survived = {raw["id"] for raw in first[: COUNT // 2]}
    assert needed <= set(took_effect) <= needed | survived
    if not loses or moment == "committed":
        assert survived <= set(took_effect)
    await in_order(stack, [first[COUNT // 2 :], more, last, alone])


def start_sleeper(moment: str, redis_url: str, stores_url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.sleepy_archiver", moment, redis_url, stores_url, str(PARTITIONS)]
    return subprocess.Popen(command)


async def in_order(stack: Stack, batches: list[list[dict[str, object]]]) -> None:
    """Events of a run stand in the archive in the order in which they were published."""
    places = {a.event().id: (a.partition, a.position) for a in stack.archived() if a.verdict == "effective"}
    published: dict[object, list[object]] = {}
    for raw in (raw for batch in batches for raw in batch):
        published.setdefault(raw["run"], []).append(raw["id"])
    for ids in published.values():
        positions = [places[str(id_)] for id_ in ids]
        assert positions == sorted(positions)
