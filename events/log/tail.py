"""Read the log of a partition from an exact position. Positions are dense, so what is missing shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

from redis.asyncio import Redis

from events.codec import from_fields
from events.errors import Fenced
from events.event import Event, Position
from events.log.client import AnyRedis, ask
from events.log.layout import keys_of
from events.log.scripts import Script

_CHECK = Script("check")
_LAST_N = 2**64 - 1
_SCAN = 1_000
_UNREADABLE = (TypeError, ValueError)
"""What the codec raises for fields that are no event."""
_SHARE_OF_TIMEOUT, _DEFAULT_TIMEOUT_S = 0.8, 5.0


class LogBroken(Fenced):
    """The log does not go on from here; ``recovery.open_partition`` looks, and opens it again where needed."""


class TrimmedGap(LogBroken):
    """Entries that the reader has not read yet are gone from Redis."""


class Rewound(LogBroken):
    """The log ends before the reader's position, or another epoch is open."""


class ForeignEntry(LogBroken):
    """An entry of the log is no event: something else than append wrote it."""


class Health(NamedTuple):
    """What ``check`` found: the epoch open in Redis (0: none), the error a reader gets (None: sound), and why.

    ``log_id`` is the identity of the log that is there; empty: none. ``whole``: Redis has what it had at the reader's
    position and all that followed; it may have been restarted. ``goes_on``: appends are taken there, whatever the
    reader has. ``replica``: the server only follows another one, and takes no writes.
    """

    epoch: int
    broken: type[LogBroken] | None
    why: str
    log_id: str
    whole: bool
    goes_on: bool
    replica: bool


async def read(
    redis: AnyRedis, log_id: str, partition: int, after: Position, limit: int = 500, block_ms: int = 0
) -> list[tuple[Position, Event]]:
    """The entries of the log ``log_id`` that follow ``after``, without a gap, at most ``limit``.

    ``Position(epoch, -1)`` is the start of an epoch. Waits up to ``block_ms`` for the first entry (0: not at all), but
    never as long as the client's socket time-out; a waiting reader occupies one connection. Empty means that there is
    nothing yet: the log was checked to go on from ``after``. Raises TrimmedGap, Rewound, ForeignEntry, Transient.
    """
    entries, holder = await _xread(redis, partition, after, limit, block_ms)
    if not entries or holder != log_id.encode():
        health = await check(redis, log_id, partition, after)
        if health.broken:
            raise health.broken(f"partition {partition}: {health.why}", partition=partition)
        return []
    return _decode(partition, after, entries)


async def check(redis: AnyRedis, log_id: str, partition: int, after: Position) -> Health:
    """Whether a reader that has everything of the log ``log_id`` up to ``after`` can go on. Raises Transient."""
    answer = await _CHECK.run(redis, keys_of(partition)[:4], *after, log_id)
    epoch, kind, why, holder, whole, goes_on, replica = answer
    broken = {b"": None, b"GAP": TrimmedGap, b"REWOUND": Rewound}[kind]
    return Health(int(epoch), broken, why.decode(), holder.decode(), whole == 1, goes_on == 1, replica == 1)


async def scan(redis: AnyRedis, key: str) -> AsyncIterator[list[tuple[str, Event | None]]]:
    """All entries of a log by id, in batches, whoever wrote them; None for what is no event. Raises Transient."""
    start = "-"
    while True:
        entries: Any = await ask(redis, key, partial(_xrange, key=key, start=start))
        if not entries:
            return
        yield [(entry_id.decode(), _event_of(fields)) for entry_id, fields in entries]
        start = "(" + entries[-1][0].decode()


async def _xrange(node: Redis, key: str, start: str) -> Any:
    return await node.xrange(key, start, "+", count=_SCAN)


def _event_of(fields: Any) -> Event | None:
    try:
        return from_fields(fields)
    except _UNREADABLE:
        return None


async def _xread(
    redis: AnyRedis, partition: int, after: Position, limit: int, block_ms: int
) -> tuple[list[Any], bytes | None]:
    """Entries, and whose log they were read from.

    Looked at in this order, one is as good as a look at both at once: a log that became ours only in between was opened
    by a recovery, which has moved the watermark that the reader goes by.
    """
    epoch, n = after
    start = f"{epoch}-{n}" if n >= 0 else f"{epoch - 1}-{_LAST_N}" if epoch > 0 else "0-0"
    keys = keys_of(partition)

    async def look(node: Redis) -> tuple[Any, Any]:
        async with node.pipeline(transaction=False) as pipe:
            pipe.xread({keys.log: start}, count=limit, block=_block(node, block_ms))
            pipe.hget(keys.meta, "log")
            answer, holder = await pipe.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        return answer, holder

    answer, holder = await ask(redis, keys.log, look)
    if not answer or isinstance(holder, Exception):
        return [], None
    # RESP3 answers {key: [entries]}, RESP2 [(key, entries)]
    return list(answer[keys.log.encode()][0] if isinstance(answer, dict) else answer[0][1]), holder


def _block(redis: Redis, block_ms: int) -> int | None:
    """BLOCK for XREAD: shorter than the socket's patience, which would end the wait with an error."""
    if block_ms <= 0:
        return None
    timeout_s = redis.connection_pool.connection_kwargs.get("socket_timeout", _DEFAULT_TIMEOUT_S)
    most = int(timeout_s * 1000 * _SHARE_OF_TIMEOUT) if timeout_s else block_ms
    return max(1, min(block_ms, most))


def _decode(partition: int, after: Position, entries: list[Any]) -> list[tuple[Position, Event]]:
    decoded = []
    epoch, n = after
    for entry_id, fields in entries:
        n += 1
        position = Position.parse(entry_id)
        if position != (epoch, n):
            broken = TrimmedGap if position.epoch == epoch else Rewound
            raise broken(f"partition {partition}: {position} stands where {epoch}-{n} is expected", partition=partition)
        try:
            decoded.append((position, from_fields(fields)))
        except _UNREADABLE as error:
            raise ForeignEntry(
                f"partition {partition}: {position} is no event: {error}", partition=partition
            ) from error
    return decoded
