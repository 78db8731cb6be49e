"""kill -9 of projector, archiver and Redis, at random points of a whole import: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish_under_fire
from tests.chaos.workload import made_up_runs, real_runs
from tests.redis_cluster import redis_cluster
from tests.soak import ALL

VICTIMS = ("redis", "archiver", "projector-a", "projector-b")
EMBEDDED, SCALED_OUT = "embedded", "cluster-postgresql"
KILLS = {EMBEDDED: 20, SCALED_OUT: 8} if ALL else {EMBEDDED: 6, SCALED_OUT: 2}
"""The same happens either way; where a Redis Cluster comes back more slowly, less often."""
RUNS = 10_000 if ALL else 60
"""Runs at most."""


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("deployed", [EMBEDDED, SCALED_OUT])
def test_kills_during_import(tmp_path: Path, deployed: str, request: pytest.FixtureRequest) -> None:
    """C1, C2, C6: every process is killed again and again while runs are imported: some of those at hand (all in a
    ``make soak``), or on a Redis Cluster (all nodes at once) and PostgreSQL some. REFOLD_SEED repeats a run's choices.
    """
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng, kills = random.Random(seed), KILLS[deployed]
    runs = real_runs() if deployed == EMBEDDED else []
    runs = runs or made_up_runs(240 if deployed == EMBEDDED else 40, rng)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    rng.shuffle(victims)
    rng.shuffle(runs)
    del runs[RUNS:]
    where: dict[str, Any] = {}
    if deployed == SCALED_OUT:
        where = {"database_url": request.getfixturevalue("postgres").new_database()}
        where |= {"redis": redis_cluster(tmp_path / "redis")}

    async def scenario() -> None:
        async with running_cluster(tmp_path, **where) as cluster:
            await publish_under_fire(cluster, runs, victims, rng)
            print(f"{len(runs)} runs published during {kills} kills")
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())
