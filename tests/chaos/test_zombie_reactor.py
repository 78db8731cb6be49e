"""Reactors are frozen in mid-reaction, lose their partitions, wake up, and finish what others have done since."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish_while_frozen
from tests.chaos.workload import made_up_runs

FREEZES = 2
ROLES = {"archiver": "archiver", "projector": "projector", "reactors-a": "reactors", "reactors-b": "reactors"}


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_zombie_reactor(tmp_path: Path) -> None:
    """C8, invariant 2: SIGSTOP past its lease, then SIGCONT: each run is settled once, whoever's answer comes first."""
    rng = random.Random(11)
    runs = made_up_runs(20 * FREEZES, rng)

    async def scenario() -> None:
        async with running_cluster(tmp_path, roles=ROLES) as cluster:
            await publish_while_frozen(cluster, runs, ("reactors-a", "reactors-b"), FREEZES, rng)
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())
