"""A Redis Cluster, node by node: which one holds a key, and a plain client of it.

All keys of a partition lie on one node (``layout``), so whatever is done to a partition is done on that node, with the
same client and the same commands as on a single server. redis-py's own cluster client knows which node holds a slot; a
node is talked to with a plain one, since blocking reads, transactions and pub/sub are matters of one connection, and so
that trouble with one node stays with that node.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import (
    ConnectionError,
    MovedError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TimeoutError,
)

from events.errors import Transient
from events.log.address import node_url, node_urls
from events.log.redis_errors import redis_errors

TIMEOUT_S = 10.0
MAX_CONNECTIONS = 256
"""Connections of this process to one server, at most."""
SLOTS = 16_384

_LOOK_TIMEOUT_S = 2.0
"""How long one node may take to tell which node holds what, before another is asked."""
_REDIRECTS = 4

_Answer = TypeVar("_Answer")


class Cluster:
    """The nodes of a Redis Cluster. ``open`` finds them, ``aclose`` lets them go."""

    def __init__(self, url: str, map_: RedisCluster, max_connections: int) -> None:
        self._url = url
        self._map = map_
        self._max_connections = max_connections
        self._nodes: dict[str, Redis] = {}
        self._stale = False
        self._looking = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, max_connections: int = MAX_CONNECTIONS) -> Cluster:
        """The cluster that any of the nodes in ``url`` belongs to. Raises Transient, SetupError."""
        return cls(url, await _look_up(url), max_connections)

    async def ask(self, key: str, command: Callable[[Redis], Awaitable[_Answer]]) -> _Answer:
        """Run a command on the node that holds ``key``. Raises as ``redis_errors`` tells.

        Follows a slot that has moved: the node that answered so has done nothing. A slot on its way is Transient: a
        partition has several keys, and no node can serve them before it has all of them.
        """
        with redis_errors():
            for _ in range(_REDIRECTS):
                node = await self.holder(key)
                try:
                    return await command(node)
                except MovedError as moved:
                    await self._follow(moved)
                except (ConnectionError, ReadOnlyError, TimeoutError, OSError):
                    self._stale = True
                    raise
        raise Transient(f"the nodes of the Redis Cluster do not agree on who holds {key}: try again")

    async def holder(self, key: str) -> Redis:
        """The client of the node that holds ``key``, as far as is known. Raises RedisClusterException."""
        await self._refresh()
        node = self._map.get_node_from_key(key)
        if node is None:
            raise RedisClusterException(f"no node of the cluster holds the slot of {key}")
        return self._client(node.host, int(node.port))

    async def url_of(self, key: str) -> str:
        """The URL of the node that holds ``key``, looked up anew. Raises Transient."""
        self._stale = True
        with redis_errors():
            return self._url_at(await self.holder(key))

    async def live_url(self, liked: str = "") -> str:
        """The URL of a master that answers: the one at ``liked`` if it still does. Raises Transient."""
        self._stale = True
        return self._url_at(await self.live(liked))

    async def live(self, liked: str = "") -> Redis:
        """The client of any master that answers: what is published at one is heard at all. Raises Transient."""
        nodes = await self.masters()
        random.shuffle(nodes)
        for node in sorted(nodes, key=lambda node: self._url_at(node) != liked):
            try:
                async with asyncio.timeout(_LOOK_TIMEOUT_S):
                    await node.ping()
                return node
            except (RedisError, OSError):
                self._stale = True
        raise Transient("no node of the Redis Cluster answers")

    async def masters(self) -> list[Redis]:
        """The clients of all nodes that hold slots. Raises Transient."""
        with redis_errors():
            await self._refresh()
        return [self._client(node.host, int(node.port)) for node in self._map.get_primaries()]

    async def ping(self) -> None:
        """Make sure that every master answers, and that all slots are served. Raises Transient, SetupError."""
        self._stale = True
        with redis_errors():
            for node in await self.masters():
                await node.ping()
            info: Any = await node.cluster("INFO")
        if info["cluster_state"] != "ok":
            served = f"{info['cluster_slots_ok']} of {SLOTS} slots are served"
            raise Transient(f"the Redis Cluster is in state {info['cluster_state']}: {served}")

    def look_again(self) -> None:
        """Ask the cluster anew who holds what, before the next command."""
        self._stale = True

    async def aclose(self) -> None:
        """Let all connections go."""
        await self._map.aclose()
        for node in self._nodes.values():
            await node.aclose()

    def _url_at(self, node: Redis) -> str:
        where = node.connection_pool.connection_kwargs
        return node_url(self._url, where["host"], where["port"])

    def _client(self, host: str, port: int) -> Redis:
        name = f"{host}:{port}"
        if name not in self._nodes:
            # once is enough: whether it is still the node to ask, the cluster knows better than a further try
            retry = Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
            self._nodes[name] = plain_client(node_url(self._url, host, port), self._max_connections, retry)
        return self._nodes[name]

    async def _follow(self, moved: MovedError) -> None:
        if moved.host:
            await self._map.nodes_manager.move_slot(moved)
        else:
            self._stale = True

    async def _refresh(self) -> None:
        """Learn anew who holds what, if there is reason to. Raises RedisClusterException, Transient."""
        if self._stale:
            async with self._looking:
                await self._look()

    async def _look(self) -> None:
        if not self._stale:
            return  # whoever had the lock before has looked
        try:
            await self._map.nodes_manager.initialize()
        except RedisClusterException:
            # none of those that were known answers: the ones that the address names may
            known, self._map = self._map, await _look_up(self._url)
            await known.aclose()
        self._stale = False
        await self._forget()

    async def _forget(self) -> None:
        """Let the connections to nodes go that are no part of the cluster any more."""
        known = {f"{node.host}:{node.port}" for node in self._map.get_nodes()}
        for name in set(self._nodes) - known:
            await self._nodes.pop(name).aclose()


def plain_client(url: str, max_connections: int = MAX_CONNECTIONS, retry: Retry | None = None) -> Redis:
    """A client of one server: bounded waiting, bounded connections, few and quick retries."""
    return Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        max_connections=max_connections,
        retry=retry or Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
    )


async def _look_up(url: str) -> RedisCluster:
    """The map of the cluster, from whichever of its nodes answers first. Raises Transient, SetupError."""
    trouble: Transient | None = None
    for one in node_urls(url):
        found = RedisCluster.from_url(
            one, socket_timeout=_LOOK_TIMEOUT_S, socket_connect_timeout=_LOOK_TIMEOUT_S, reinitialize_steps=0,
            require_full_coverage=False,
        )  # fmt: skip
        try:
            with redis_errors():
                return await found.initialize()
        except Transient as error:
            trouble = error
    assert trouble is not None, "an address names a node"
    raise trouble
