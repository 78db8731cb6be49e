"""Two masters at once: a replica was promoted, and half of the processes still talk to the old master."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from services.composition import Backend
from tests.chaos.cluster import ROLES, Cluster, Role, running_cluster
from tests.chaos.killing import publish
from tests.chaos.replication import replicated_redis
from tests.chaos.test_replica_promoted import acknowledged, positions_are_dense
from tests.chaos.workload import made_up_runs


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_split_brain(tmp_path: Path) -> None:
    """Whoever was answered, by either side, finds the event in the archive, once: SQL alone decides what counts.

    An archiver, a publisher and the reactors stay with the old master; another archiver and publisher meet the new one.
    Then the old master becomes the new one's replica, with its connections kept, and everybody goes on there.
    """
    runs = made_up_runs(36, random.Random(3))
    before, old_side, new_side = runs[:12], runs[12:24], runs[24:]
    redis = replicated_redis(tmp_path)

    async def scenario() -> None:
        async with running_cluster(tmp_path, redis=redis) as cluster:
            async with asyncio.TaskGroup() as group:
                group.create_task(publish(cluster, before))
                await acknowledged(cluster, 3)
                redis.cut_off()
                await acknowledged(cluster, 3)
                await asyncio.to_thread(redis.promote, keep=True)
            async with asyncio.TaskGroup() as group:
                group.create_task(publish(cluster, old_side))
                second = await another_side(cluster, tmp_path)
                group.create_task(publish(second, new_side))
                await acknowledged(second, 3)
                await asyncio.to_thread(redis.follow)
            await second.backend.close()
            cluster.acknowledged |= second.acknowledged
            await cluster.check([event for run in runs for event in run])
            await positions_are_dense(cluster)

    asyncio.run(scenario())


async def another_side(cluster: Cluster, folder: Path) -> Cluster:
    """A publisher and an archiver that come later: the address leads them to the new master."""
    archiver = Role("archiver-2", ROLES["archiver"], cluster.roles["archiver"].environ, folder / "archiver-2.log")
    archiver.start()
    cluster.roles[archiver.name] = archiver
    return Cluster(cluster.redis, cluster.roles, await Backend.open(cluster.backend.settings))
