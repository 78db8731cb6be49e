"""``refold doctor`` against a real Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis

from events.errors import Transient
from events.log.client import connect, ping
from projections.registry import PROJECTIONS
from services.cli.check import Check
from services.cli.doctor import examine
from services.settings import Settings
from tests.redis_cluster import RedisCluster, redis_cluster, until
from tests.servers import PostgresServer, free_port, redis_server


def test_a_redis_that_may_drop_keys_is_wrong(tmp_path: Path) -> None:
    server = redis_server(tmp_path / "redis")
    settings = Settings(data=tmp_path / "data", redis_url=server.url)

    def found() -> Check:
        return next(check for check in examine(settings) if check.name == "Redis")

    try:
        assert found().state == "ok"
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "volatile-lru")
        assert found().state == "bad"
        assert "volatile-lru" in found().found
        assert "noeviction" in found().advice
    finally:
        server.stop()


def test_a_cluster_is_looked_at_node_by_node(cluster: RedisCluster, tmp_path: Path) -> None:
    """It is enough to name one node; what is wrong with another one is seen all the same."""
    settings = Settings(data=tmp_path / "data", redis_url=cluster.nodes[0].url)

    def found() -> Check:
        return next(check for check in examine(settings) if check.name == "Redis")

    assert found().state == "ok"
    assert "cluster, 3 masters, 0 replicas" in found().found
    other = cluster.nodes[2]
    try:
        other.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert (found().state, "allkeys-lru" in found().found) == ("bad", True)
    finally:
        other.run("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_a_cluster_that_serves_not_every_slot_is_wrong(tmp_path: Path) -> None:
    """It is not ready either: a partition may be among what is missing."""
    cluster = redis_cluster(tmp_path / "redis", masters=1)
    try:
        [node] = cluster.nodes
        node.run("CLUSTER", "DELSLOTS", 100)
        until(lambda: "cluster_state:fail" in node.run("CLUSTER", "INFO"), "the cluster is down")
        [check] = [c for c in examine(Settings(data=tmp_path, redis_url=node.url)) if c.name == "Redis"]
        assert (check.state, "16383 of 16384 slots" in check.found) == ("bad", True)
        with pytest.raises(Transient, match="16383 of 16384 slots"):
            asyncio.run(pinged(node.url))
        node.run("CLUSTER", "ADDSLOTS", 100)
        cluster.until_ready()
        asyncio.run(pinged(node.url))
    finally:
        cluster.stop()


async def pinged(url: str) -> None:
    redis = await connect(url)
    try:
        await ping(redis)
    finally:
        await redis.aclose()


def test_several_nodes_are_named_and_the_first_is_away(cluster: RedisCluster, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()},{cluster.nodes[1].url.removeprefix('redis://')}"
    [check] = [c for c in examine(Settings(data=tmp_path / "data", redis_url=url)) if c.name == "Redis"]
    assert (check.state, "cluster, 3 masters" in check.found) == ("ok", True)


def test_connections_are_counted_against_what_postgresql_gives(postgres: PostgresServer, tmp_path: Path) -> None:
    """Its own suite's server has 200, of which PostgreSQL keeps 3 for superusers."""

    def found(workers: int) -> Check:
        settings = Settings(data=tmp_path, database_url=postgres.url, workers=workers)
        return next(check for check in examine(settings) if check.name == "connections")

    worker = 7 * (1 + len(PROJECTIONS))
    assert (found(0).state, f"up to {worker}, " in found(0).found) == ("ok", True)
    assert "PostgreSQL gives 197, " in found(0).found
    assert found(4).state == "warning"
    assert f"set up {5 * worker + 3 * len(PROJECTIONS)}, " in found(4).found
    assert "max_connections" in found(4).advice
