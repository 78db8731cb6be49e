"""kill -9 of projector, archiver and Redis, at random points of a whole import: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish_under_fire
from tests.chaos.workload import made_up_runs, real_runs

KILLS = 32
VICTIMS = ("redis", "archiver", "projector-a", "projector-b")


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_kills_during_import(tmp_path: Path) -> None:
    """C1, C2, C6: at least 30 kills while every run at hand is imported. REFOLD_SEED repeats a run's choices."""
    seed = int(os.environ.get("REFOLD_SEED") or random.randrange(10**9))
    print("REFOLD_SEED =", seed)
    rng = random.Random(seed)
    runs = real_runs() or made_up_runs(300, rng)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]
    rng.shuffle(victims)
    rng.shuffle(runs)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await publish_under_fire(cluster, runs, victims, rng)
            print(f"{len(runs)} runs published during {KILLS} kills")
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())
