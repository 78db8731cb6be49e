"""Cancelled at any moment: publishes and reads of clients that went away, projectors that took too long to stop."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from events.archive import queries
from events.database import Database, Stores
from events.event import START
from projections.engine.projector import Projector
from tests.chaos.projector_world import check_toy, is_folded
from tests.contracts.engine_lab import TOY, Lab
from tests.servers import redis_server
from tests.stack import Stack, raw_event, running_stack

CANCELLATIONS = 50
LEASE_S = 0.4


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_cancellations(stores: Stores, log_db: Database, tmp_path: Path) -> None:
    """Invariants 1, 2 and 5: no torn state, no stuck thread, no lost connection, no answer to another's question."""
    rng = random.Random(17)
    batches = [[raw_event(f"r{number % 5}") for _ in range(6)] for number in range(CANCELLATIONS)]
    server = redis_server(tmp_path / "redis")

    async def scenario() -> None:
        async with running_stack(server, log_db) as stack:
            for number, batch in enumerate(batches):
                works = [stack.publisher.publish(batch), _read(stack)]
                await _cancelled(rng, *works, *([_project(stores, log_db)] if number % 5 == 0 else []))
            outcomes = [outcome for batch in batches for outcome in await stack.publisher.publish(batch)]
            expected = [raw["id"] for batch in batches for raw in batch]
            assert [outcome.id for outcome in outcomes] == expected
            assert {outcome.status for outcome in outcomes} <= {"stored", "duplicate"}
            assert Counter(stack.ids()) == dict.fromkeys(expected, 1)
            clients = await stack.redis.client_list()
            assert len(clients) < 40, clients
            await asyncio.wait_for(_fold_all(stores, log_db), 60)

    try:
        asyncio.run(scenario())
    finally:
        server.stop()
    check_toy(Lab(stores))
    assert not [thread for thread in threading.enumerate() if thread.daemon and thread.name.startswith("lease")]


async def _cancelled(rng: random.Random, *works: Coroutine[Any, Any, Any]) -> None:
    """Begin them, and cancel each after a moment; a projector once more, while it stops."""
    tasks = [asyncio.create_task(work) for work in works]
    for task in tasks + tasks[2:]:
        await asyncio.sleep(rng.choice([0, 0.001, 0.01, 0.05]) * rng.random())
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert not isinstance(result, Exception), result


async def _read(stack: Stack) -> None:
    me = asyncio.current_task()
    assert me is not None
    while not me.cancelling():  # the client of Redis can swallow a cancellation while it connects
        found = await stack.db.read(lambda conn: queries.read_log(conn, 0, START, 50))
        assert all(archived.partition == 0 for archived in found)
        assert await stack.redis.echo("mine") == b"mine"


async def _project(stores: Stores, log: Database) -> None:
    """As the service around a projector does: whatever ends it, it is stopped; here that may be cancelled, too."""
    projector = Projector([TOY], stores, log, lease_ttl_s=LEASE_S, poll_s=LEASE_S / 8)
    try:
        await projector.start()
        await projector.wait()
    finally:
        await projector.stop()


async def _fold_all(stores: Stores, log: Database) -> None:
    projector = Projector([TOY], stores, log, lease_ttl_s=LEASE_S, poll_s=LEASE_S / 8)
    await projector.start()
    while not await asyncio.to_thread(is_folded, stores, log):
        await asyncio.sleep(0.05)
        projector.wake(0)
    await projector.stop()
