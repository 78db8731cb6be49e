"""What Redis holds of each partition, and how much of that the archive does not have yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from redis.asyncio import Redis

from events.bounded import map_bounded
from events.event import Position
from events.log.client import AnyRedis, Cluster, ask
from events.log.layout import keys_of
from events.log.redis_errors import redis_errors


class Backlog(NamedTuple):
    """One partition in Redis. ``waiting``: entries that are not archived; None while recovery must look at it first."""

    epoch: int
    entries: int
    waiting: int | None


async def read_backlog(redis: AnyRedis, marks: Mapping[int, Position]) -> dict[int, Backlog]:
    """The log of each partition against its watermark. Raises Transient when Redis cannot be asked.

    ``marks`` are read before it, so that what is archived meanwhile counts as waiting for a moment.
    """
    partitions = sorted(marks)
    answers = await map_bounded(lambda partition: _read(redis, partition, marks[partition]), partitions)
    found = {}
    for partition, answer in zip(partitions, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        found[partition] = answer
    return found


async def _read(redis: AnyRedis, partition: int, mark: Position) -> Backlog:
    keys = keys_of(partition)

    async def look(node: Redis) -> tuple[list[bytes | None], int]:
        async with node.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.meta, ["epoch", "next"])
            pipe.xlen(keys.log)
            told, entries = await pipe.execute()
        return told, entries

    (epoch, following), entries = await ask(redis, keys.log, look)
    if epoch is None or following is None:
        return Backlog(mark.epoch, entries, None)
    waiting = max(0, int(following) - 1 - mark.n) if int(epoch) == mark.epoch else None
    return Backlog(int(epoch), entries, waiting)


async def memory_bytes(redis: AnyRedis) -> int:
    """Memory that Redis uses for data; of a cluster, its masters together. Raises Transient."""
    nodes = await redis.masters() if isinstance(redis, Cluster) else [redis]
    total = 0
    for node in nodes:
        with redis_errors():
            told = await node.info("memory")
        total += int(told["used_memory"])
    return total
