"""Partitions and the inbox move to other nodes of the Redis Cluster while events flow, by both ways there are."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from redis.crc import key_slot

from events.log.layout import keys_of
from services.apps.inbox import STREAM
from tests.chaos.cluster import ROLES, running_cluster
from tests.chaos.killing import publish
from tests.chaos.test_redis_cluster_failover import by_the_inbox
from tests.chaos.workload import made_up_runs
from tests.redis_cluster import RedisCluster, redis_cluster
from tests.servers import PostgresServer
from tests.soak import ALL

RUNS = 45 if ALL else 24


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_redis_cluster_reshard(tmp_path: Path, postgres: PostgresServer) -> None:
    """A partition's new node is another server: the fence closes, recovery re-opens, nothing is lost or doubled."""
    rng = random.Random(6)
    runs = made_up_runs(RUNS, rng)

    async def scenario() -> None:
        redis = redis_cluster(tmp_path / "redis")
        async with running_cluster(
            tmp_path, database_url=postgres.new_database(), roles=ROLES | {"inbox": "inbox"}, redis=redis
        ) as cluster:
            for number in range(3):
                async with asyncio.TaskGroup() as group:
                    group.create_task(publish(cluster, runs[number : 2 * RUNS // 3 : 3]))
                    group.create_task(by_the_inbox(cluster, runs[2 * RUNS // 3 + number :: 3]))
                    group.create_task(asyncio.to_thread(_move_some, redis, number, rng))
            assert redis.holder(STREAM) is redis.nodes[2]
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())


def _move_some(redis: RedisCluster, number: int, rng: random.Random) -> None:
    for key in (STREAM, *(keys_of(partition).log for partition in rng.sample(range(8), 3))):
        slot, target = key_slot(key.encode()), redis.nodes[number]
        if redis.holder(key) is not target:
            move = redis.migrate_slot if number == 1 else redis.move_slot
            move(slot, target)
