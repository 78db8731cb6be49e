"""A Redis with a replica behind an address that can be pointed at either, as a failover does it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from events.log.layout import keys_of
from tests.servers import RedisServer, redis_server


class VirtualAddress:
    """A TCP address that forwards to a port which may change. It lives in a thread of its own."""

    def __init__(self, target: int) -> None:
        self._target: int | None = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="virtual address", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def point_to(self, target: int | None, *, keep: bool = False) -> None:
        """Lead new connections there (None: nowhere). Those that exist end, unless they are to be kept."""
        self._target = target
        if not keep:
            self._do(self._drop())

    def close(self) -> None:
        """End everything."""
        self._server.close()
        self._do(self._drop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._target is not None:
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers.add(back)
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
                self._writers.discard(back)
        except OSError:
            pass  # nobody listens there, or a side has gone: so has the connection
        finally:
            writer.transport.abort()
            self._writers.discard(writer)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.transport.abort()


@dataclass
class ReplicatedRedis(RedisServer):
    """A master, a replica that follows it over a link which can be cut, and the address that clients know."""

    replica: RedisServer = field(kw_only=True)
    front: VirtualAddress = field(kw_only=True)
    link: VirtualAddress = field(kw_only=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.front.port}/0"

    def follow(self) -> None:
        """Let the replica follow the master, and wait until it has all that the master has."""
        self.link.point_to(self.port)
        with _client(self.replica.port) as replica, _client(self.port) as master:
            master.config_set("repl-diskless-sync-delay", "0")
            replica.replicaof("127.0.0.1", str(self.link.port))
            deadline, mark = time.monotonic() + 60, uuid4().hex
            master.set("refold-test:in-step", mark)
            while _text(replica, "refold-test:in-step") != mark:
                assert time.monotonic() < deadline, replica.info("replication")
                time.sleep(0.02)

    def cut_off(self) -> None:
        """Let the replica fall behind from now on."""
        self.link.point_to(None)

    def behind(self, partitions: int) -> int:
        """How many entries of the log the replica lacks."""
        with _client(self.replica.port) as replica, _client(self.port) as master:
            metas = [keys_of(partition).meta for partition in range(partitions)]
            ahead, behind = (sum(int(one.hget(key, "next") or 0) for key in metas) for one in (master, replica))
            return ahead - behind

    def promote(self, *, keep: bool = False) -> None:
        """Make the replica the master; the address leads there. ``keep``: who is connected to the old one stays so."""
        with _client(self.replica.port) as replica:
            replica.replicaof("NO", "ONE")
        self.front.point_to(self.replica.port, keep=keep)
        old = RedisServer(self.directory, self.port, self.process)
        self.directory, self.port, self.process = self.replica.directory, self.replica.port, self.replica.process
        self.replica = old

    def stop(self) -> None:
        """Stop both servers, and let the addresses go."""
        for server in (RedisServer(self.directory, self.port, self.process), self.replica):
            if server.process.poll() is None:
                server.stop()
        self.front.close()
        self.link.close()


def replicated_redis(folder: Path) -> ReplicatedRedis:
    """Start a master and its replica, in step with each other."""
    master, replica = redis_server(folder / "one"), redis_server(folder / "two")
    made = ReplicatedRedis(
        master.directory, master.port, master.process, replica=replica,
        front=VirtualAddress(master.port), link=VirtualAddress(master.port),
    )  # fmt: skip
    made.follow()
    return made


def _text(client: Any, key: str) -> str:
    """A text, or nothing while the replica is still loading."""
    try:
        return (client.get(key) or b"").decode()
    except redis.RedisError:
        return ""


def _client(port: int) -> Any:
    return redis.Redis(port=port, socket_timeout=60)
