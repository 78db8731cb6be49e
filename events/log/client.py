"""The Redis of a log, one server or a cluster, and how to ask it: ``ask`` runs a command where a key is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, ResponseError

from events.errors import SetupError, Transient
from events.log.address import node_urls
from events.log.cluster import MAX_CONNECTIONS, plain_client
from events.log.cluster import Cluster as Cluster
from events.log.redis_errors import redis_errors

_Answer = TypeVar("_Answer")
_Name = TypeVar("_Name")

AnyRedis: TypeAlias = Redis | Cluster
"""The Redis of a log."""


async def ask(redis: AnyRedis, key: str, command: Callable[[Redis], Awaitable[_Answer]]) -> _Answer:
    """Run a command where ``key`` is. Raises Transient, Fenced, SetupError: ``redis_errors`` tells which."""
    if isinstance(redis, Cluster):
        return await redis.ask(key, command)
    with redis_errors():
        try:
            return await command(redis)
        except ReadOnlyError:
            await reconnect(redis)
            raise


async def reconnect(redis: AnyRedis) -> None:
    """Leave a server that takes no writes: its address may lead to another one by now, or the slots may have moved.

    A master that became a replica keeps its connections, so whoever does not leave it stays with it for ever.
    """
    if isinstance(redis, Cluster):
        redis.look_again()
    else:
        await redis.connection_pool.disconnect(inuse_connections=False)


async def by_node(redis: AnyRedis, keys: Mapping[_Name, str]) -> list[list[_Name]]:
    """The names of keys, those together whose keys lie on one node. Raises Transient."""
    groups: dict[int, list[_Name]] = {}
    for name, key in keys.items():
        with redis_errors():
            node = await redis.holder(key) if isinstance(redis, Cluster) else redis
        groups.setdefault(id(node), []).append(name)
    return list(groups.values())


async def live_node(redis: AnyRedis) -> Redis:
    """A client to hear and to send pub/sub messages with; in a cluster of any node that answers. Raises Transient."""
    return await redis.live() if isinstance(redis, Cluster) else redis


async def ping(redis: AnyRedis) -> None:
    """Make sure that Redis answers; of a cluster, every master, and that all slots are served. Raises Transient."""
    if isinstance(redis, Cluster):
        await redis.ping()
    else:
        with redis_errors():
            await redis.ping()


async def url_of(redis: AnyRedis, url: str, key: str) -> str:
    """The URL to reach ``key`` at now: of a Redis opened with ``url``, or of one node of that cluster."""
    return await redis.url_of(key) if isinstance(redis, Cluster) else url


async def live_url(redis: AnyRedis, url: str, liked: str = "") -> str:
    """The URL to hear pub/sub messages at now: in a cluster that of any node that answers, of ``liked`` if it does."""
    return await redis.live_url(liked) if isinstance(redis, Cluster) else url


async def connect(url: str, *, max_connections: int = MAX_CONNECTIONS) -> AnyRedis:
    """Open the Redis that ``url`` names; it tells itself whether it is a cluster.

    ``max_connections`` bounds those to one server. Raises Transient when nobody answers, SetupError for an address that
    cannot be right.
    """
    urls, trouble = node_urls(url), Transient()
    for one in urls:
        try:
            async with AsyncExitStack() as stack:
                client = plain_client(one, max_connections)
                stack.push_async_callback(client.aclose)
                if not await _is_cluster(client):
                    if len(urls) > 1:
                        raise SetupError("REDIS_URL names several nodes, but the one that answers is no Redis Cluster")
                    stack.pop_all()
                    return client
            if urlsplit(one).path not in ("", "/", "/0"):
                raise SetupError("a Redis Cluster has no database but 0: correct the end of REDIS_URL")
            return await Cluster.open(url, max_connections)
        except Transient as error:
            trouble = error
    raise trouble


async def _is_cluster(client: Redis) -> bool:
    try:
        with redis_errors():
            info: Any = await client.info("cluster")
    except ResponseError as error:
        raise SetupError(f"{error}: correct the end of REDIS_URL (a Redis Cluster has no database but 0)") from error
    return bool(info.get("cluster_enabled"))
