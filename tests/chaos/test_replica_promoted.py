"""The master dies, and a replica that had fallen behind takes its place at the same address."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from sqlalchemy import select

from events.archive.queries import read_epochs
from events.archive.schema import event_log
from tests.chaos.cluster import PATIENCE_S, Cluster, running_cluster
from tests.chaos.killing import publish
from tests.chaos.replication import ReplicatedRedis, replicated_redis
from tests.chaos.workload import made_up_runs
from tests.soak import soak

LEAST_EVENTS = 7
"""Events that the smallest made up run has."""


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("store", "failovers"), [("sqlite", 2), pytest.param("postgresql", 1, marks=soak)])
def test_replica_promoted(tmp_path: Path, store: str, failovers: int, request: pytest.FixtureRequest) -> None:
    """Invariant 1: nothing acknowledged is lost, nothing doubled, and publishers see no more than "again"."""
    database_url = request.getfixturevalue("postgres").new_database() if store == "postgresql" else ""
    runs = made_up_runs(20 * failovers, random.Random(5))
    redis = replicated_redis(tmp_path)

    async def scenario() -> None:
        async with running_cluster(tmp_path, database_url=database_url, redis=redis) as cluster:
            for number in range(failovers):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail_over(cluster, redis))
                    group.create_task(publish(cluster, runs[number::failovers]))
                # the dead one comes back, as the replica of its successor
                redis.replica.restart()
                await asyncio.to_thread(redis.follow)
            await cluster.check([event for run in runs for event in run])
            await positions_are_dense(cluster)

    asyncio.run(scenario())


async def fail_over(cluster: Cluster, redis: ReplicatedRedis) -> None:
    """While events are acknowledged, cut the replica off; later kill the master, and let the replica take its place."""
    await acknowledged(cluster, 3)
    redis.cut_off()
    await acknowledged(cluster, 5)
    assert redis.behind(cluster.backend.partitions) > 0
    redis.kill()
    await asyncio.to_thread(redis.promote)


async def acknowledged(cluster: Cluster, runs: int) -> None:
    """Wait until so many more runs were acknowledged."""
    enough = len(cluster.acknowledged) + runs * LEAST_EVENTS
    deadline = time.monotonic() + PATIENCE_S
    while len(cluster.acknowledged) < enough:
        assert time.monotonic() < deadline, cluster.logs()
        await asyncio.sleep(0.01)


async def positions_are_dense(cluster: Cluster) -> None:
    """Every epoch ended at the watermark that it had: 0 .. its end are archived, each once, and nothing behind."""
    log = event_log.c
    rows = await cluster.backend.db.read(lambda conn: conn.execute(select(log.partition, log.epoch, log.n)).all())
    epochs = await cluster.backend.db.read(read_epochs)
    numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for partition, epoch, n in rows:
        numbers[partition, epoch].append(n)
    for partition, ends in epochs.items():
        assert len(ends) > 2, "no failover reached this partition"
        for epoch, end in ends.items():
            found = sorted(numbers.pop((partition, epoch), []))
            assert found == list(range(len(found)))
            assert end is None or end == len(found) - 1
    assert not numbers
