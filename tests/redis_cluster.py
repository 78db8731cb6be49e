"""A real Redis Cluster on loopback for the tests, and a client of it that takes commands as a single server's does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from events.log.client import AnyRedis, Cluster, connect
from services.embedded.redis_server import find_server
from tests.servers import RedisServer, free_port

SLOTS = 16_384
NODE_TIMEOUT_MS = 2_000
"""After which a node that is silent is taken for dead."""
PATIENCE_S = 100.0


@dataclass
class Node:
    """One server of a cluster, with fsync always."""

    directory: Path
    port: int
    bus_port: int
    node_timeout_ms: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0), decode_responses=True)

    def run(self, *command: Any) -> Any:
        """What the node answers to one command."""
        with self.client() as client:
            return client.execute_command(*command)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1", "port": self.port, "dir": self.directory, "save": "", "enable-debug-command": "yes",
            "appendonly": "yes", "appendfsync": "always", "cluster-enabled": "yes", "cluster-port": self.bus_port,
            "cluster-node-timeout": self.node_timeout_ms, "repl-diskless-sync-delay": 0,
        }  # fmt: skip
        arguments = [str(text) for name, value in options.items() for text in (f"--{name}", value)]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_server(), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self.answers, "the node answers")

    def answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.directory / "server.log").read_text()
        with suppress(RedisError):
            return bool(self.run("PING"))
        return False

    def send(self, what: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(what)

    def kill(self) -> None:
        """``kill -9``."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def id(self) -> str:
        return str(self.run("CLUSTER", "MYID"))


@dataclass
class RedisCluster:
    """``nodes`` are what it began with: the masters, then their replicas. A failover changes who is what."""

    directory: Path
    nodes: list[Node] = field(default_factory=list)

    @property
    def url(self) -> str:
        """An address that names every node, so that some may be away."""
        return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0"

    def holder(self, key: str) -> Node:
        """The master that holds a key, as the nodes that answer see it."""
        return self._master_of(key_slot(key.encode()))

    def masters(self) -> list[Node]:
        return [node for node in self.nodes if "master" in node.run("ROLE")]

    def flush(self) -> None:
        for node in self.masters():
            node.run("FLUSHALL")

    def kill(self) -> None:
        """``kill -9`` of every node."""
        for node in self.nodes:
            node.kill()

    stop = kill

    def restart(self, *, lose_everything: bool = False) -> None:
        """Start every node again; their places in the cluster are kept, their data unless told otherwise."""
        self.kill()
        for node in self.nodes:
            if lose_everything:
                shutil.rmtree(node.directory / "appendonlydir", ignore_errors=True)
            node.start()
        self.until_ready()

    def until_ready(self) -> None:
        until(self._is_ready, "the cluster is ready")

    def _is_ready(self) -> bool:
        with suppress(RedisError):
            return all(self._sees_all(node) for node in self.nodes)
        return False

    def _sees_all(self, node: Node) -> bool:
        info = dict(line.split(":", 1) for line in node.run("CLUSTER", "INFO").splitlines())
        counts = {"cluster_known_nodes": str(len(self.nodes)), "cluster_slots_ok": str(SLOTS), "cluster_state": "ok"}
        role = node.run("ROLE")
        return counts.items() <= info.items() and (role[0] == "master" or role[3] == "connected")

    def move_slot(self, slot: int, to: Node) -> None:
        """Move a slot to another node, key by key, as resharding tools do."""
        source = self._master_of(slot)
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        while keys := source.run("CLUSTER", "GETKEYSINSLOT", slot, 100):
            for key in keys:
                source.run("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        for node in [to, source, *self.masters()]:
            node.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    def migrate_slot(self, slot: int, to: Node) -> None:
        """Have a slot moved as a whole by the servers themselves, where they know how; else as ``move_slot`` does."""
        source = self._master_of(slot)
        try:
            source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.id)
        except ResponseError:
            self.move_slot(slot, to)
        until(lambda: self._master_of(slot) is to, f"slot {slot} has moved")

    def _master_of(self, slot: int) -> Node:
        for node in self.nodes:
            with suppress(RedisError):
                for first, last, master, *_ in node.run("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(n for n in self.nodes if n.port == master[1])
        raise AssertionError(f"nobody holds slot {slot}")


def redis_cluster(
    directory: Path, *, masters: int = 3, replicas_of: Sequence[int] = (), node_timeout_ms: int = NODE_TIMEOUT_MS
) -> RedisCluster:
    """Start a cluster of that many masters; ``replicas_of`` are those that have a replica, which come last."""
    cluster = RedisCluster(directory)
    try:
        for i in range(masters + len(replicas_of)):
            cluster.nodes.append(Node(directory / f"node-{i}", free_port(), free_port(), node_timeout_ms))
            cluster.nodes[-1].start()
        _join(cluster.nodes, masters, replicas_of)
        cluster.until_ready()
    except BaseException:
        cluster.kill()
        raise
    return cluster


def _join(nodes: list[Node], masters: int, replicas_of: Sequence[int]) -> None:
    first, share = nodes[0], -(-SLOTS // masters)
    for i, node in enumerate(nodes):
        node.run("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        if i < masters:
            node.run("CLUSTER", "ADDSLOTSRANGE", i * share, min((i + 1) * share, SLOTS) - 1)
        if node is not first:
            node.run("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus_port)
    until(partial(_know_each_other, nodes), "the nodes know each other")
    for i, replica in zip(replicas_of, nodes[masters:], strict=True):
        replica.run("CLUSTER", "REPLICATE", nodes[i].id)


def _know_each_other(nodes: list[Node]) -> bool:
    """A node that is still in its handshake has no name yet."""
    listed = [node.run("CLUSTER", "NODES") for node in nodes]
    return all(len(one.splitlines()) == len(nodes) and "handshake" not in one for one in listed)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"in vain waited until {what}"
        time.sleep(0.02)


class Routed(Cluster):
    """A cluster that takes the commands of a single server's client, each by its first argument, a key."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def run(key: Any, *arguments: Any, **options: Any) -> Any:
            return await self.ask(str(key), lambda node: getattr(node, name)(key, *arguments, **options))

        return run

    async def publish(self, channel: str, message: Any) -> Any:
        return await (await self.live()).publish(channel, message)

    async def script_flush(self) -> None:
        for node in await self.masters():
            await node.script_flush()

    async def info(self, section: str) -> Counter[str]:
        """The numbers of all nodes together."""
        infos = [await node.info(section) for node in await self.masters()]
        return sum((Counter({n: v for n, v in info.items() if isinstance(v, int)}) for info in infos), Counter())

    async def flushall(self) -> None:
        for node in await self.masters():
            await node.flushall()


AnyServer = RedisServer | RedisCluster


async def open_redis(url: str, **options: Any) -> Any:
    """The Redis at an address, a single server or a cluster, with one set of commands."""
    found: AnyRedis = await connect(url, **options)
    if isinstance(found, Redis):
        return found
    await found.aclose()
    return await Routed.open(url, **options)
