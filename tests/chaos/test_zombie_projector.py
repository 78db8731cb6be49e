"""A projector is frozen in mid-work, loses its partitions to another, wakes up, and goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish_while_frozen
from tests.chaos.workload import made_up_runs
from tests.soak import ALL

FREEZES = 4 if ALL else 2


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_zombie_projector(tmp_path: Path) -> None:
    """C2, invariant 5: SIGSTOP past its lease, then SIGCONT: the zombie is fenced, nobody's work is lost or doubled."""
    rng = random.Random(7)
    runs = made_up_runs(20 * FREEZES, rng)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await publish_while_frozen(cluster, runs, ("projector-a", "projector-b"), FREEZES, rng)
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())
