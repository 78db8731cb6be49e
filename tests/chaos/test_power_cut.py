"""Everything dies in the same instant, Redis first, again and again: both stores pick up where they were."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish, ripen
from tests.chaos.workload import made_up_runs
from tests.soak import soak

CUTS = 2


@pytest.mark.chaos
@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=soak)])
def test_power_cut(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    """Invariant 1: what was acknowledged is there after every process was killed at once."""
    database_url = request.getfixturevalue("postgres").new_database() if store == "postgresql" else ""
    rng = random.Random(20260301)
    runs = made_up_runs(20 * CUTS, rng)

    async def scenario() -> None:
        async with running_cluster(tmp_path, database_url=database_url) as cluster:

            async def cut() -> None:
                for victim in cluster.roles:
                    await ripen(cluster, victim)
                await asyncio.sleep(rng.uniform(0, 0.2))
                cluster.redis.kill()
                for role in cluster.roles.values():
                    role.kill()
                await asyncio.to_thread(cluster.redis.restart)

            for number in range(CUTS):
                async with asyncio.TaskGroup() as group:
                    group.create_task(cut())
                    group.create_task(publish(cluster, runs[number::CUTS]))
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())
