"""FLUSHALL while everything runs: connections stay open, and only the log itself can tell that it is gone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
import redis

from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.killing import publish
from tests.chaos.workload import made_up_runs
from tests.soak import ALL

FLUSHES = 3 if ALL else 2


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_flushall(tmp_path: Path) -> None:
    """C3: recovery without a restart of anything, nothing acknowledged lost, nothing doubled."""
    rng = random.Random(11)
    runs = made_up_runs(20 * FLUSHES, rng)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            for number in range(FLUSHES):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_flush(cluster, rng.uniform(0, 0.4)))
                    group.create_task(publish(cluster, runs[number::FLUSHES]))
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())


async def _flush(cluster: Cluster, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    with redis.Redis.from_url(cluster.redis.url) as client:
        await asyncio.to_thread(client.flushall)
