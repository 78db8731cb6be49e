"""A master of the Redis Cluster dies for good while publishers publish: its replica takes over, without a person."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from events.errors import Transient
from services.apps.inbox import STREAM
from tests.chaos.cluster import PATIENCE_S, ROLES, Cluster, running_cluster
from tests.chaos.killing import publish
from tests.chaos.workload import Run, made_up_runs
from tests.redis_cluster import Node, RedisCluster, open_redis, redis_cluster, until
from tests.servers import PostgresServer
from tests.soak import ALL, soak

RUNS = 40 if ALL else 24


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=soak)], ids=["dies", "hangs"])
def test_redis_cluster_failover(tmp_path: Path, postgres: PostgresServer, how: signal.Signals) -> None:
    """Half of the partitions and the inbox change their server, and lose what the replica had not got yet.

    A master that only hung comes back as a replica, with clients still connected to it.
    """
    runs = made_up_runs(RUNS, random.Random(5))

    async def scenario() -> None:
        redis = redis_cluster(tmp_path / "redis", replicas_of=(1,))
        old = redis.holder(STREAM)
        async with running_cluster(
            tmp_path, database_url=postgres.new_database(), roles=ROLES | {"inbox": "inbox"}, redis=redis
        ) as cluster:
            async with asyncio.TaskGroup() as group:
                group.create_task(publish(cluster, runs[: RUNS * 5 // 8]))
                group.create_task(asyncio.to_thread(_lose_master, redis, old, how))
            epochs = await cluster.backend.archive.epochs()
            assert all(len(epochs[p]) > 1 for p in (1, 2, 5, 6)), "another server holds the log, in a new epoch"
            if how is signal.SIGSTOP:
                old.send(signal.SIGCONT)
            await publish(cluster, runs[RUNS * 5 // 8 : RUNS * 4 // 5])
            await by_the_inbox(cluster, runs[RUNS * 4 // 5 :])
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())


def _lose_master(redis: RedisCluster, old: Node, how: signal.Signals) -> None:
    old.send(how)
    until(lambda: redis.nodes[-1].run("ROLE")[0] == "master", "the replica has taken over")


async def by_the_inbox(cluster: Cluster, runs: list[Run]) -> None:
    """Publish runs through the inbox, each event again until Redis takes it, and wait until the archive has them."""
    client: Any = await open_redis(cluster.redis.url)
    wanted = {event["id"] for run in runs for event in run}
    try:
        async with asyncio.timeout(PATIENCE_S):
            for run in runs:
                for event in run:
                    await _add(client, event)
    finally:
        await client.aclose()

    async def all_there() -> bool:
        return wanted <= {row.id for row in await cluster.archived()}

    await cluster.until(all_there, f"{len(wanted)} events from the inbox")
    cluster.acknowledged |= wanted


async def _add(client: Any, event: dict[str, Any]) -> None:
    while True:
        try:
            await client.xadd(STREAM, {"__data__": orjson.dumps(event)})
            return
        except Transient:
            await asyncio.sleep(0.1)
