"""Open a partition: the first time, and again after Redis lost or replaced what it held. SQL decides.

First SQL ends the epoch at the archive's watermark and opens the next one, which fences an archiver that slept; then
one script makes Redis follow, carrying over what survived behind the watermark (``survivors`` tells what that is).
Killed in between, it is simply run again: that ends the empty epoch and opens another, and the survivors are still
where they were.

SQL also decides between two servers that both hold the log, as when an old master comes back after a failover: whoever
archives goes on, and a server that was overtaken is left alone while another one's entries are archived.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from events.archive import store
from events.archive.queries import read_epochs
from events.archive.refusals import keep_refusals
from events.bounded import map_bounded
from events.clock import now_ms
from events.database import Database
from events.errors import Fenced, Transient
from events.event import START, Position
from events.log.client import AnyRedis, reconnect
from events.log.home import move_in, places_of
from events.log.identity import claim, other_log
from events.log.layout import keys_of
from events.log.scripts import Script
from events.log.survivors import Survey, survey
from events.log.tail import Health, check
from events.log.turn import Turn

OVERTAKEN_S = 2.0
"""How long the archive is watched for the work of others, before a server that was overtaken gets the log back."""

_CLOSE, _REOPEN = Script("close"), Script("reopen")
_pack = msgspec.msgpack.Encoder().encode
_EMPTY = _pack({})
STEP = 5_000
"""Entries that one script call looks at: it holds up the whole server while it runs."""

_TRIES = 10
_PAUSE_S = 0.1

logger = logging.getLogger(__name__)


async def open_partition(redis: AnyRedis, db: Database, partition: int) -> Position:
    """Make sure that the partition is open and goes on from the archive's watermark; the watermark.

    Does nothing to a sound partition, so any process may call it at any time; of several at once one does the work.
    Raises SetupError when this Redis holds the log of another store, Fenced when others keep at it, Transient when a
    store cannot be reached, and when this Redis is empty while the log is alive at another one (``home``).
    """
    return (await open_partitions(redis, db, [partition]))[partition]


async def open_partitions(redis: AnyRedis, db: Database, partitions: Collection[int]) -> dict[int, Position]:
    """``open_partition`` for several side by side; what was done to all of them is one log line."""
    return {partition: opened.watermark for partition, opened in (await reopen(redis, db, partitions)).items()}


async def reopen(redis: AnyRedis, db: Database, partitions: Collection[int]) -> dict[int, Opened]:
    """``open_partitions``, and what was done to each."""
    log_id = await db.read(store.log_id)
    await claim(redis, log_id)
    answers = await map_bounded(lambda p: _open(redis, db, log_id, p), partitions)
    _tell([answer for answer in answers if isinstance(answer, Opened) and answer.ended is not None])
    opened: dict[int, Opened] = {}
    for partition, answer in zip(partitions, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        opened[partition] = answer
    return opened


async def _open(redis: AnyRedis, db: Database, log_id: str, partition: int) -> Opened:
    for attempt in range(_TRIES):
        watermark = await db.read(lambda conn: store.watermark(conn, partition))
        health = await check(redis, log_id, partition, watermark)
        if health.broken is None:
            return Opened(partition, watermark)
        if health.log_id not in ("", log_id):
            raise other_log(health.log_id, log_id)
        if health.replica:
            await reconnect(redis)
            raise Transient(f"partition {partition}: this Redis follows another one, which REDIS_URL should name")
        if attempt == 0 and _just_ended(watermark):
            await asyncio.sleep(_PAUSE_S)  # somebody may be between the two steps; let them finish
            continue
        turn = Turn(redis, partition)
        if not await turn.take():
            await asyncio.sleep(_PAUSE_S)
            continue
        try:
            if health.goes_on and health.epoch < watermark.epoch:
                await _wait_for_others(db, partition, watermark, turn)
            return await _reopen(redis, db, log_id, partition, watermark, health, turn)
        except Fenced as fenced:
            logger.debug("partition %d: another process re-opens it: %s", partition, fenced)
            await asyncio.sleep(_PAUSE_S)
        finally:
            await turn.give_back()
    raise Fenced(f"partition {partition} is not open yet: {health.why}", partition=partition)


async def _wait_for_others(db: Database, partition: int, watermark: Position, turn: Turn) -> None:
    """Nothing happened to this server, and yet SQL has a later epoch: another server has the log, or had it.

    Raises Transient when the archive goes on meanwhile.
    """
    deadline = time.monotonic() + OVERTAKEN_S
    while time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE_S)
        await turn.keep()
        if await db.read(lambda conn: store.watermark(conn, partition)) != watermark:
            raise Transient(
                f"partition {partition}: the log goes on at another Redis than this one, which was overtaken: "
                "look whether REDIS_URL leads every process to the same server"
            )
    logger.warning(
        "partition %d: this Redis was overtaken by another one, which is silent: it gets the log back", partition
    )


@dataclass(frozen=True)
class Opened:
    """A partition that is open, and what was done to open it.

    ``ended`` is where its former epoch ended, None when nothing had to be done; ``why`` it was closed. ``whole``: Redis
    held all that it had held, so nothing was lost. ``survivors`` were carried over, ``refused`` and ``foreign`` entries
    were not.
    """

    partition: int
    watermark: Position
    ended: Position | None = None
    why: str = ""
    whole: bool = True
    survivors: int = 0
    refused: int = 0
    foreign: int = 0


def _tell(reopened: list[Opened]) -> None:
    """A new log and an expected re-opening are one line each; a loss is a warning that says where."""
    new = [one for one in reopened if one.ended == START]
    whole = [one for one in reopened if one.ended != START and one.whole and not one.foreign and not one.refused]
    for what, group in (("log opened", new), ("log re-opened after a restart of Redis, nothing lost", whole)):
        if group:
            carried = sum(one.survivors for one in group)
            more = f", {carried} entries carried over" if carried else ""
            logger.info("%s: %d partition%s%s", what, len(group), "" if len(group) == 1 else "s", more)
    for one in reopened:
        if one not in new and one not in whole:
            logger.warning(
                "partition %d: %s ended (%s); epoch %d opened, %d entries carried over, %d refused, %d foreign",
                one.partition, one.ended, one.why, one.watermark.epoch, one.survivors, one.refused, one.foreign,
            )  # fmt: skip


def _just_ended(watermark: Position) -> bool:
    return watermark.n == -1 and watermark != START


async def _reopen(
    redis: AnyRedis, db: Database, log_id: str, partition: int, expected: Position, health: Health, turn: Turn
) -> Opened:
    keys = keys_of(partition)
    epoch = max(expected.epoch, health.epoch) + 1
    ended_ms, places = now_ms(), await places_of(redis)

    def work(conn: Connection) -> Position:
        move_in(conn, places, empty=not health.log_id)
        return store.end_epoch(conn, partition, expected, epoch, reason=health.why, now_ms=ended_ms)

    watermark = await db.write(work)
    closed, archived = await _CLOSE.run(redis, keys[:4], epoch)
    epochs = (await db.read(read_epochs))[partition]
    ends = {ended: n for ended, n in epochs.items() if n is not None}
    found = await survey(redis, db, partition, ends, Position(health.epoch, archived), turn.keep)
    if found.refusals:
        await db.write(lambda conn: keep_refusals(conn, found.refusals))
    arguments = (_pack({str(ended): n for ended, n in ends.items()}), int(all(n < 0 for n in ends.values())), log_id)
    survivors, foreign = await _carry_over(redis, partition, epoch, arguments, found, closed, turn)
    return Opened(partition, watermark, expected, health.why, health.whole, survivors, len(found.refusals), foreign)


async def _carry_over(
    redis: AnyRedis, partition: int, epoch: int, known: tuple[bytes, int, str], found: Survey, closed: bytes, turn: Turn
) -> tuple[int, int]:
    """Let Redis follow into the new epoch, step by step; how many entries survived, and how many are foreign."""
    ends, nothing_archived, log_id = known
    skipped, step, foreign = _pack(found.skipped), b"-", 0
    while True:
        answer = await _REOPEN.run(
            redis, keys_of(partition), epoch, ends, skipped if step else _EMPTY, nothing_archived, log_id,
            _EMPTY if step else _pack(found.seeds), closed, step, STEP,
        )  # fmt: skip
        match answer:
            case [b"OPEN", _, survivors, _]:
                return survivors, foreign
            case [b"STEP", step, _, strange]:
                foreign += strange
                await turn.keep()
            case [b"OTHER", holder]:
                raise other_log(holder.decode(errors="replace"), log_id)
            case [b"LATE", later]:
                raise Fenced(f"partition {partition}: epoch {later.decode()} is open already", partition=partition)
            case _:
                raise TypeError(f"the reopen script answered {answer!r:.200}")
