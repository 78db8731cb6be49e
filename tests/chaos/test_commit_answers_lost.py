"""Commits get lost on their way, or their answers do: whoever committed asks what holds, and goes on from there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
import redis

from tests.chaos.cluster import running_cluster
from tests.chaos.commit_proxy import commit_proxy, every
from tests.chaos.killing import publish
from tests.chaos.workload import made_up_runs
from tests.servers import PostgresServer
from tests.soak import ALL

RUNS = 24 if ALL else 15
STRIDE = 5
LOSSES = 20 if ALL else 12


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_commit_answers_lost(tmp_path: Path, postgres: PostgresServer) -> None:
    """Invariants 1 and 2: of archiver, projectors, reactors, recovery and leases, each of unknown outcome at times."""
    runs = made_up_runs(RUNS, random.Random(5))

    async def enough() -> bool:
        return len(proxy.lost) >= LOSSES

    async def scenario(proxied: str) -> None:
        async with running_cluster(tmp_path, database_url=proxied) as cluster:
            await publish(cluster, runs[: RUNS // 3])
            proxy.begin(every(STRIDE))
            await publish(cluster, runs[RUNS // 3 : 2 * RUNS // 3])
            with redis.Redis.from_url(cluster.redis.url) as client:
                client.flushall()  # so that epochs end, too
            await publish(cluster, runs[2 * RUNS // 3 :])
            await cluster.until(enough, f"{LOSSES} lost commits")
            proxy.begin()
            await cluster.check([event for run in runs for event in run])

    with commit_proxy(postgres.port) as proxy:
        asyncio.run(scenario(proxy.url(postgres.new_database())))
        losses = Counter(proxy.lost)
    print(dict(losses))
    assert min(losses["lose the commit"], losses["lose the answer"]) >= LOSSES // 4
