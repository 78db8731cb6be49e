"""Redis loses a part of what it held, or all of it, in every way we know, while everything runs."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from events.log.layout import OWNER, keys_of
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.killing import publish
from tests.chaos.test_replica_promoted import acknowledged, positions_are_dense
from tests.chaos.workload import made_up_runs
from tests.servers import RedisServer

Loss = Callable[[RedisServer], None]

CUT_COMMANDS, CUT_BYTES = 60, 37


def asked(*command: str) -> Loss:
    """Somebody types it into a console."""

    def loss(server: RedisServer) -> None:
        with redis.Redis.from_url(server.url, socket_timeout=60) as client:
            client.execute_command(*command)

    return loss


def restarted(change: Callable[[Path], object]) -> Loss:
    """Killed, its files changed, started again."""

    def loss(server: RedisServer) -> None:
        server.kill()
        change(server.directory)
        server.restart()

    return loss


def cut_between_commands(folder: Path) -> None:
    """The file loses its last commands, as when the disk had not got them."""
    file = growing_file(folder)
    content = file.read_bytes()
    starts = list(command_starts(content))
    file.write_bytes(content[: starts[-min(CUT_COMMANDS, len(starts) - 1)]])


def cut_within_a_command(folder: Path) -> None:
    file = growing_file(folder)
    file.write_bytes(file.read_bytes()[:-CUT_BYTES])


def growing_file(folder: Path) -> Path:
    (file,) = (folder / "appendonlydir").glob("*.incr.aof")
    return file


def command_starts(content: bytes) -> Iterator[int]:
    """Where each command of an append-only file begins."""
    at = 0
    while at < len(content):
        yield at
        end = content.index(b"\r\n", at)
        parts, at = int(content[at + 1 : end]), end + 2
        for _ in range(parts):
            end = content.index(b"\r\n", at)
            at = end + 2 + int(content[at + 1 : end]) + 2


def keep_a_copy(folder: Path) -> None:
    shutil.copytree(folder / "appendonlydir", folder / "older")


def put_the_copy_back(folder: Path) -> None:
    shutil.rmtree(folder / "appendonlydir")
    (folder / "older").rename(folder / "appendonlydir")


KEYS = keys_of(3)
LOSSES: dict[str, Loss] = {
    "nothing but its process": restarted(keep_a_copy),
    "everything": restarted(lambda folder: shutil.rmtree(folder / "appendonlydir")),
    "its last commands": restarted(cut_between_commands),
    "the end of its last command": restarted(cut_within_a_command),
    "all keys": asked("FLUSHALL"),
    "the keys of a database": asked("FLUSHDB"),
    "the log of a partition": asked("DEL", KEYS.log),
    "its entries": asked("XTRIM", KEYS.log, "MAXLEN", "0"),
    "what tells its epoch": asked("DEL", KEYS.meta),
    "what it remembers": asked("DEL", KEYS.seen_a, KEYS.seen_b),
    "whose it is": asked("DEL", OWNER, KEYS.meta),
    "its numbering": asked("XADD", KEYS.log, "*", "a stranger", "was here"),
    "its scripts": asked("SCRIPT", "FLUSH"),
    "its clients": asked("CLIENT", "KILL", "TYPE", "normal"),
    "all since the first restart": restarted(put_the_copy_back),
}


def test_commands_are_found() -> None:
    content = b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n"
    assert list(command_starts(content)) == [0, 15]


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_redis_loses_things(tmp_path: Path) -> None:
    """C3, C4, C43: after each loss the log goes on by itself, with nothing acknowledged lost and nothing doubled."""
    parts = [made_up_runs(8 * len(LOSSES), random.Random(17))[number :: len(LOSSES)] for number in range(len(LOSSES))]

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            for (what, loss), runs in zip(LOSSES.items(), parts, strict=True):
                async with asyncio.TaskGroup() as group:
                    group.create_task(lose(cluster, what, loss))
                    group.create_task(publish(cluster, runs))
            await cluster.check([event for runs in parts for run in runs for event in run])
            await positions_are_dense(cluster)

    asyncio.run(scenario())


async def lose(cluster: Cluster, what: str, loss: Loss) -> None:
    await acknowledged(cluster, 2)
    try:
        await asyncio.to_thread(loss, cluster.redis)  # type: ignore[arg-type]  # a single server
    except Exception as error:
        error.add_note(f"when Redis was to lose {what}")
        raise
