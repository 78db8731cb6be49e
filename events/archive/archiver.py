"""The archiver: copies every position of the log, in order, into SQL, and wakes whoever waits for it.

All partitions that have something go into one SQL transaction: one sync to disk for all of them. Any number of
archivers may run: the compare-and-set of the watermarks lets one of them write a position, the others look again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from redis.asyncio import Redis
from sqlalchemy import Connection

from events.archive import erasing, store
from events.archive.queries import read_watermarks
from events.bounded import map_bounded
from events.clock import database_now_ms
from events.database import Database
from events.errors import Fenced, Transient
from events.event import START, Position
from events.log import tail
from events.log.arrivals import Arrivals
from events.log.client import AnyRedis, ask, by_node
from events.log.home import SAID_EVERY_S, places_of, say
from events.log.layout import ARCHIVED_CHANNEL, keys_of
from events.log.recovery import open_partitions
from events.log.trim import trim

BATCH = 1_000
"""Entries of one partition in one transaction, at most."""
HOT_WINDOW = 10_000
"""Archived entries that a partition keeps in Redis."""

_WAIT_MS = 300
"""How long one wait for new entries blocks: bounds how late a stop, or a log that was replaced, is noticed."""
_CHECKS = 64
"""Partitions that are checked after a wait without an answer."""
_TRIM_EVERY_S = 0.25
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TELL_EVERY_S = 60.0

Batches = Mapping[int, list[store.Entry]]

logger = logging.getLogger(__name__)


class Archiver:
    """Archives the partitions 0 .. ``partitions`` - 1. ``run`` is its whole life."""

    def __init__(
        self, redis: AnyRedis, db: Database, partitions: int, *, batch: int = BATCH, hot_window: int = HOT_WINDOW
    ) -> None:
        self._redis = redis
        self._db = db
        self._partitions = range(partitions)
        self._batch = batch
        self._hot_window = hot_window
        self._log_id = ""
        self._arrivals = Arrivals(redis)
        self._marks: dict[int, Position] = {}
        self._untrimmed: set[int] = set()
        self._erasures: dict[int, Position] = {}
        self._checked = 0
        self._trimmed_at = 0.0
        self._told_at = -_TELL_EVERY_S
        self._open_at, self._pause_s = 0.0, _FIRST_PAUSE_S
        self._said_at = -SAID_EVERY_S
        self._received_ms = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Archive until ``stopping``; the batch in hand is finished. Raises SetupError when a store refuses.

        What passes (a lost connection, a full disk, a log that must be re-opened) is waited for, ever longer. While a
        node of a cluster is away, the partitions of the others go on.
        """
        self._arrivals.start()
        try:
            await self._run(stopping)
        finally:
            await self._arrivals.stop()

    async def _run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                closed = len(self._marks) < len(self._partitions)
                if not self._marks or (closed and time.monotonic() >= self._open_at):
                    await self._open()
                await self._step()
                await self._say_where()
                if len(self._marks) == len(self._partitions):
                    self._pause_s = _FIRST_PAUSE_S
            except Transient as error:
                # whatever was in hand: SQL tells where to go on
                self._marks = {}
                self._put_off("archiving pauses", error)
            if not self._marks:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), self._open_at - time.monotonic())

    async def _open(self) -> None:
        """Make sure that the partitions that are not are open, and learn where the archive stands.

        Those of one node of a cluster at a time: one that is away holds up no other. Raises Transient when all are.
        """
        self._log_id = await self._db.read(store.log_id)
        self._erasures = await self._db.read(erasing.read_last_erasures)
        closed = [partition for partition in self._partitions if partition not in self._marks]
        away: Transient | None = None
        for group in await by_node(self._redis, {partition: keys_of(partition).log for partition in closed}):
            try:
                opened = await open_partitions(self._redis, self._db, group)
            except Transient as error:
                away = error
            else:
                self._marks |= opened
                self._look_at(opened)
                # whoever archived an erasure may have died before it trimmed
                self._untrimmed.update(opened.keys() & self._erasures.keys())
        if away is not None and self._marks:
            self._put_off("some partitions are not archived for now, opened again", away)
        elif away is not None:
            raise away

    def _look_at(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._arrivals.more(partition)

    def _put_off(self, what: str, error: Transient) -> None:
        """Open what is closed again after a while, ever longer."""
        logger.warning("%s for %.1f s: %s", what, self._pause_s, error)
        self._open_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    async def _step(self) -> None:
        """Archive what is there; wait a moment when there is nothing."""
        batches = await self._read(await self._waiting())
        if batches:
            await self._archive(batches)
        if not batches or time.monotonic() - self._trimmed_at > _TRIM_EVERY_S:
            await self._trim()

    async def _say_where(self) -> None:
        """Tell those who are led to another Redis that the log lives at this one."""
        if time.monotonic() - self._said_at >= SAID_EVERY_S:
            places = await places_of(self._redis)
            await self._db.write(lambda conn: say(conn, places))
            self._said_at = time.monotonic()

    async def _waiting(self) -> list[int]:
        """The partitions whose log goes on; after a wait without an answer some, so that each is checked."""
        named = await self._arrivals.wait(self._marks, _WAIT_MS / 1000)
        return [p for p in sorted(named) or self._some() if p in self._marks]

    def _some(self) -> list[int]:
        """Partitions to check while nothing happens: all of them in turn, so many at a time that waiting is cheap."""
        count = len(self._partitions)
        chosen = [(self._checked + i) % count for i in range(min(count, _CHECKS))]
        self._checked = (self._checked + len(chosen)) % count
        return chosen

    async def _read(self, partitions: list[int]) -> Batches:
        answers = await map_bounded(
            lambda p: tail.read(self._redis, self._log_id, p, self._marks[p], self._batch), partitions
        )
        batches: dict[int, list[store.Entry]] = {}
        broken: list[int] = []
        away: dict[int, Transient] = {}
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, tail.LogBroken):
                logger.debug("%s", answer)
                broken.append(partition)
            elif isinstance(answer, Transient):
                away[partition] = answer
            elif isinstance(answer, BaseException):
                raise answer
            elif answer:
                batches[partition] = answer
                if len(answer) == self._batch:
                    self._arrivals.more(partition)
        self._leave(away)
        if broken:
            self._marks |= await open_partitions(self._redis, self._db, broken)
            self._look_at(broken)
        return batches

    def _leave(self, away: Mapping[int, Transient]) -> None:
        """Go on without the partitions whose node cannot be reached. Raises Transient when no other is left."""
        if not away:
            return
        error = next(iter(away.values()))
        if away.keys() >= self._marks.keys():
            raise error
        for partition in away:
            del self._marks[partition]
        self._put_off(f"{len(away)} partitions are not archived for now, opened again", error)

    async def _archive(self, batches: Batches) -> None:
        """One transaction for all partitions, then one wake-up each. Fenced by another: look where it stands."""
        marks = self._marks

        def work(conn: Connection) -> tuple[dict[int, Position], dict[int, Position]]:
            # ever later, whatever the clock does: lists by received time have no second thoughts
            received_ms = self._received_ms = max(database_now_ms(conn), self._received_ms + 1)
            advanced = {
                partition: store.archive_batch(conn, partition, marks[partition], entries, received_ms)
                for partition, entries in sorted(batches.items())
            }
            return advanced, erasing.erase_archived(conn, batches, received_ms)

        try:
            advanced, erased = await self._db.write(work)
        except Fenced as fenced:
            self._tell_of_another(fenced)
            self._marks = await self._db.read(read_watermarks)
            self._erasures = await self._db.read(erasing.read_last_erasures)
            self._untrimmed.update(self._erasures)
            return
        self._marks.update(advanced)
        self._erasures.update(erased)
        self._untrimmed.update(advanced)
        await self._wake(advanced)

    def _tell_of_another(self, fenced: Fenced) -> None:
        """Now and then: two of them, in a rolling deploy say, meet all the time, and no harm is done."""
        now = time.monotonic()
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            logger.info("another archiver is at work: %s", fenced)

    async def _wake(self, advanced: Mapping[int, Position]) -> None:
        async def publish(node: Redis) -> None:
            async with node.pipeline(transaction=False) as pipe:
                for partition, mark in advanced.items():
                    pipe.publish(ARCHIVED_CHANNEL, f"{partition} {mark} {self._log_id}")
                await pipe.execute()

        # any node passes it on; this one was just read from
        await ask(self._redis, keys_of(next(iter(advanced))).log, publish)

    async def _trim(self) -> None:
        """Tell the log what it may forget. Not after each batch: whoever waits comes first."""
        self._trimmed_at = time.monotonic()
        partitions, self._untrimmed = self._untrimmed & self._marks.keys(), set()
        answers = await map_bounded(
            lambda p: trim(
                self._redis, self._log_id, p, self._marks[p], self._hot_window, self._erasures.get(p, START)
            ),
            partitions,
        )
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, Transient):
                self._untrimmed.add(partition)  # its log is read next, and tells whether it can be reached
            elif isinstance(answer, BaseException):
                raise answer
