"""What ``refold doctor`` says of Redis: of one server, or of each master of a cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from events.errors import SetupError
from events.log.address import node_urls
from services.cli.check import Check
from services.embedded.redis_server import OLDEST, find_server
from services.settings import Settings

_TIMEOUT_S = 3.0
_TROUBLE = (RedisError, RedisClusterException, OSError, ValueError)

Info = Mapping[str, Any]
"""What INFO says of one server."""


def look_at_redis(settings: Settings) -> Check:
    """The Redis that is named, or the one that would be started."""
    if not settings.redis_url:
        return _embedded()
    trouble = ""
    for url in node_urls(settings.redis_url):
        try:
            return _named(url)
        except _TROUBLE as error:
            trouble = str(error)
    return Check("Redis", "bad", f"REDIS_URL does not answer: {trouble}", "start it, or correct or unset REDIS_URL")


def _embedded() -> Check:
    try:
        binary = find_server()
    except SetupError as error:
        return Check("Redis", "bad", "none found", str(error))
    answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return Check("Redis", "ok", f"embedded: {' '.join(answer.stdout.split()[:3]) or binary}")


def _named(url: str) -> Check:
    """Raises what the client raises."""
    with redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S) as client:
        info: Any = client.info()
        if not info.get("cluster_enabled"):
            return _judge(f"{_what(info)}, {info.get('redis_mode', 'standalone')}", [info])
        state: Any = client.cluster("INFO")
    if state["cluster_state"] != "ok":
        found = f"{_what(info)}, cluster, {state['cluster_slots_ok']} of 16384 slots are served"
        return Check("Redis", "bad", found, "see `CLUSTER NODES` there: a master is away and no replica took over")
    return _cluster(url)


def _cluster(url: str) -> Check:
    with RedisCluster.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S) as cluster:
        masters, replicas = cluster.get_primaries(), cluster.get_replicas()
        infos: list[Info] = [cluster.info(target_nodes=node) for node in masters]
    nodes = ", ".join(
        f"{len(found)} {what}{'' if len(found) == 1 else 's'}"
        for what, found in (("master", masters), ("replica", replicas))
    )
    return _judge(f"{_what(infos[0])}, cluster, {nodes}", infos)


def _what(info: Info) -> str:
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"


def _judge(found: str, infos: Iterable[Info]) -> Check:
    """The worst that is true of any of the servers."""
    for info in infos:
        if int(str(info["redis_version"]).split(".")[0]) < OLDEST:
            return Check("Redis", "bad", found, f"Refold needs {OLDEST} or newer")
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            advice = "run `CONFIG SET maxmemory-policy noeviction` there"
            return Check("Redis", "bad", f"{found}, may drop keys ({policy})", advice)
    if not all(info.get("aof_enabled") for info in infos):
        return Check(
            "Redis", "warning", f"{found}, no append-only file", "set `appendonly yes`, or a crash loses events"
        )
    return Check("Redis", "ok", found)
