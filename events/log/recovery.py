"""Open a partition: the first time, and again after Redis lost or replaced what it held. SQL decides.

First SQL ends the epoch at the archive's watermark and opens the next one, which fences an archiver that slept; then
one script makes Redis follow, carrying over what survived behind the watermark. Killed in between, it is simply run
again: that ends the empty epoch and opens another, and the survivors are still where they were.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
from redis.asyncio import Redis

from events.archive import store
from events.archive.queries import read_epochs, read_ids
from events.bounded import map_bounded
from events.clock import now_ms
from events.database import Database
from events.errors import Fenced
from events.event import START, Position
from events.log.identity import claim, other_log
from events.log.layout import keys_of
from events.log.scripts import Script, redis_errors
from events.log.tail import Health, check, scan

_REOPEN = Script("reopen")
_pack = msgspec.msgpack.Encoder().encode
_TRIES = 10
_PAUSE_S = 0.1

logger = logging.getLogger(__name__)


async def open_partition(redis: Redis, db: Database, partition: int) -> Position:
    """Make sure that the partition is open and goes on from the archive's watermark; the watermark.

    Does nothing to a sound partition, so any process may call it at any time; of several at once one does the work.
    Raises SetupError when this Redis holds the log of another store, Fenced when others keep at it, Transient when a
    store cannot be reached.
    """
    return (await open_partitions(redis, db, [partition]))[partition]


async def open_partitions(redis: Redis, db: Database, partitions: Collection[int]) -> dict[int, Position]:
    """``open_partition`` for several side by side; what was done to all of them is one log line."""
    log_id = await db.read(store.log_id)
    await claim(redis, log_id)
    answers = await map_bounded(lambda p: _open(redis, db, log_id, p), partitions)
    _tell([answer for answer in answers if isinstance(answer, _Reopened)])
    marks: dict[int, Position] = {}
    for partition, answer in zip(partitions, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        marks[partition] = answer.watermark if isinstance(answer, _Reopened) else answer
    return marks


async def _open(redis: Redis, db: Database, log_id: str, partition: int) -> Position | _Reopened:
    for attempt in range(_TRIES):
        watermark = await db.read(lambda conn: store.watermark(conn, partition))
        health = await check(redis, log_id, partition, watermark)
        if health.broken is None:
            return watermark
        if health.log_id not in ("", log_id):
            raise other_log(health.log_id, log_id)
        if attempt == 0 and _just_ended(watermark):
            await asyncio.sleep(_PAUSE_S)  # somebody may be between the two steps; let them finish
            continue
        try:
            return await _reopen(redis, db, log_id, partition, watermark, health)
        except Fenced as fenced:
            logger.debug("partition %d: another process re-opens it: %s", partition, fenced)
            await asyncio.sleep(_PAUSE_S)
    raise Fenced(f"partition {partition} could not be opened: {health.why}", partition=partition)


@dataclass(frozen=True)
class _Reopened:
    """What re-opening a partition did. ``whole``: Redis held all that it had held, so nothing was lost."""

    partition: int
    ended: Position
    watermark: Position
    why: str
    whole: bool
    survivors: int
    foreign: int


def _tell(reopened: list[_Reopened]) -> None:
    """A new log and an expected re-opening are one line each; a loss is a warning that says where."""
    new = [one for one in reopened if one.ended == START]
    whole = [one for one in reopened if one.ended != START and one.whole and not one.foreign]
    for what, group in (("log opened", new), ("log re-opened after a restart of Redis, nothing lost", whole)):
        if group:
            carried = sum(one.survivors for one in group)
            more = f", {carried} entries carried over" if carried else ""
            logger.info("%s: %d partition%s%s", what, len(group), "" if len(group) == 1 else "s", more)
    for one in reopened:
        if one not in new and one not in whole:
            logger.warning(
                "partition %d: %s ended (%s); epoch %d opened, %d entries carried over, %d foreign ones set aside",
                one.partition, one.ended, one.why, one.watermark.epoch, one.survivors, one.foreign,
            )  # fmt: skip


def _just_ended(watermark: Position) -> bool:
    return watermark.n == -1 and watermark != START


async def _reopen(
    redis: Redis, db: Database, log_id: str, partition: int, expected: Position, health: Health
) -> _Reopened:
    keys = keys_of(partition)
    epoch = max(expected.epoch, health.epoch) + 1
    ended_ms = now_ms()
    watermark = await db.write(
        lambda conn: store.end_epoch(conn, partition, expected, epoch, reason=health.why, now_ms=ended_ms)
    )
    epochs = (await db.read(read_epochs))[partition]
    ends = {str(ended): n for ended, n in epochs.items() if n is not None}
    nothing_archived = all(n < 0 for n in ends.values())
    skipped = {id_: why for key in (keys.aside, keys.log) for id_, why in (await _survey(redis, db, key, ends)).items()}
    answer = await _REOPEN.run(redis, keys, epoch, _pack(ends), _pack(skipped), int(nothing_archived), log_id)
    if answer[0] == b"OTHER":
        raise other_log(answer[1].decode(errors="replace"), log_id)
    if answer[0] == b"LATE":
        raise Fenced(f"partition {partition}: epoch {answer[1].decode()} is open already", partition=partition)
    survivors, foreign = answer[1:]
    return _Reopened(partition, expected, watermark, health.why, health.whole, survivors, foreign)


async def _survey(redis: Redis, db: Database, key: str, ends: Mapping[str, int]) -> dict[str, str]:
    """What of a log is not carried over though it stands behind the watermark: entry id and why.

    ``foreign``: no reader could decode it. ``archived``: an earlier recovery carried it over, then Redis was rewound to
    the state before; once more, it would bring back attempts and sequence numbers that are long past.
    """
    skipped: dict[str, str] = {}
    with redis_errors():
        if await redis.type(key) != b"stream":
            return skipped
    async for batch in scan(redis, key):
        behind = {}
        for entry_id, event in batch:
            epoch, _, n = entry_id.partition("-")
            if event is None:
                skipped[entry_id] = "foreign"
            elif int(n) > ends.get(epoch, -1):
                behind[entry_id] = (event.org, event.key, event.id)
        found = await db.read(partial(read_ids, wanted=list(behind.values()))) if behind else {}
        skipped |= {entry_id: "archived" for entry_id, identity in behind.items() if identity in found}
    return skipped
