"""Refill a Redis from the archive: open every partition, and remember anew what the archive knows.

Recovery alone makes the log correct again. After it the log asks the archive about tasks and runs that it meets, and
takes an old event that is sent again for a new one, until the archive says what it is. A refilled log answers both at
once. Entries that are archived are not put back: everybody but the archiver reads them from the archive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection

from events.archive import queries, store
from events.bounded import map_bounded
from events.database import Database
from events.event import Position
from events.log.client import AnyRedis, Cluster, ask
from events.log.identity import other_log
from events.log.layout import OWNER, SEPARATOR, keys_of
from events.log.log import WINDOW
from events.log.recovery import Opened, reopen
from events.log.redis_errors import redis_errors
from events.log.scripts import Script
from events.log.survivors import Memory, of_a_run
from events.log.tail import check

_REMEMBER = Script("remember")
_BATCH = 2_000
_AT_ONCE = 4
_pack = msgspec.msgpack.Encoder().encode
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Finding:
    """What a look at a partition found. ``trouble`` is empty where the log goes on; ``remembered`` counts entries."""

    partition: int
    watermark: Position
    trouble: str
    remembered: int


@dataclass(frozen=True)
class Restored:
    """What was done to a partition: how it was opened, and how many entries its memory gained."""

    opened: Opened
    remembered: int


async def examine(redis: AnyRedis, db: Database, partitions: Collection[int]) -> list[Finding]:
    """Look at every partition, and change nothing. Raises Transient, and SetupError when another log is here."""
    log_id = await db.read(store.log_id)
    holder = await owner(redis)
    if holder not in ("", log_id):
        raise other_log(holder, log_id)
    answers = await map_bounded(lambda partition: _look(redis, db, log_id, partition), partitions)
    return _all(answers)


async def restore(redis: AnyRedis, db: Database, partitions: Collection[int], *, most: int = WINDOW) -> list[Restored]:
    """Open every partition that is closed, and fill its memory from the newest archived events, to ``most`` entries.

    May run at any time, beside everything else, and again: what is there stays. Raises as ``open_partition`` does.
    """
    opened = await reopen(redis, db, partitions)
    log_id = await db.read(store.log_id)
    counts = await map_bounded(lambda partition: _remember(redis, db, log_id, partition, most), partitions, _AT_ONCE)
    return [Restored(opened[p], count) for p, count in zip(partitions, _all(counts), strict=True)]


async def adopt(redis: AnyRedis, db: Database) -> int:
    """Delete the log of another store from this Redis, so that ours may have it; the number of keys.

    What that log had not archived is lost. Does nothing where the log is ours already. Raises Transient, SetupError.
    """
    log_id, holder = await db.read(store.log_id), await owner(redis)
    if holder == log_id:
        return 0
    deleted = 0
    with redis_errors():
        for node in await redis.masters() if isinstance(redis, Cluster) else [redis]:
            async for key in node.scan_iter(match="refold:{*}:*", count=1000):
                deleted += int(await node.unlink(key))
    return deleted + int(await ask(redis, OWNER, lambda node: node.unlink(OWNER)))


async def owner(redis: AnyRedis) -> str:
    """The identity of the log that this Redis belongs to; empty: of none. Raises Transient, SetupError."""
    holder: Any = await ask(redis, OWNER, lambda node: node.get(OWNER))
    return "" if holder is None else str(holder, errors="replace")


async def _look(redis: AnyRedis, db: Database, log_id: str, partition: int) -> Finding:
    watermark = await db.read(lambda conn: store.watermark(conn, partition))
    health = await check(redis, log_id, partition, watermark)
    if health.log_id not in ("", log_id):
        raise other_log(health.log_id, log_id)
    keys = keys_of(partition)
    trouble, remembered = health.why, 0
    if not trouble:
        remembered = sum([await ask(redis, key, lambda node: node.hlen(key)) for key in (keys.seen_a, keys.seen_b)])  # noqa: B023
    return Finding(partition, watermark, trouble, remembered)


async def _remember(redis: AnyRedis, db: Database, log_id: str, partition: int, most: int) -> int:
    keys, gained = keys_of(partition), 0
    before: Position | None = None
    epoch, turn = await ask(redis, keys.meta, lambda node: node.hmget(keys.meta, "epoch", "turn"))
    if epoch is None or turn is None:
        return 0  # closed again already: whoever opens it next begins anew
    for _ in range(0, most, _BATCH):
        before, fields = await db.read(lambda conn: _known(conn, partition, before))  # noqa: B023
        if before is None:
            return gained
        added = int(await _REMEMBER.run(redis, keys[:4], epoch, turn, _pack(fields), log_id, most))
        if added < 0:
            return gained
        gained += added
    return gained


def _known(conn: Connection, partition: int, before: Position | None) -> tuple[Position | None, dict[str, str]]:
    """What append would have remembered of the events before a position, as the archive has it by now.

    With the position of the oldest of them; None when there are none.
    """
    batch = queries.read_back(conn, partition, before, _BATCH)
    if not batch:
        return None, {}
    firsts = [(archived.position, archived.event()) for archived in batch if archived.verdict == "effective"]
    runs = sorted({(event.org, event.task, event.run) for _, event in firsts if of_a_run(event)})
    memory = Memory()
    memory.learn(queries.read_attempts(conn, sorted({run[:2] for run in runs})), queries.read_last_seqs(conn, runs))
    ids = {SEPARATOR.join(("i" + e.org, e.key, e.id)): f"{position} {e.digest}" for position, e in firsts}
    return batch[-1].position, memory.fields() | ids


def _all(answers: list[_Result | BaseException]) -> list[_Result]:
    """The answers, unless one is an error. Raises that."""
    found = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found
