"""The watchdog: a run that has been silent for too long gets ``run.terminated`` with reason ``lost`` (DESIGN 6).

One process watches all partitions, by a lease; others stand by. It reads the archive from its checkpoints on, which
stay behind the oldest run that is still open, and keeps what it knows in memory. It judges only what it has seen whole:
it asks how long the log is, reads that far, and judges by the moment at which it asked. Where the archive does not come
that far in time, no run is to blame, and all of them get their time anew; so they do when the watchdog itself begins.

What comes in between its judgement and the log is seen by the log itself: it stores the end of a run only if nothing
of that run stands behind the position that the watchdog has read up to. A lost run is provisional: a sign of life takes
its place. The event's id follows from the run's last one, so that it is given up once for one silence, whoever does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection

from events.archive import queries
from events.archive.reader import Archive
from events.clock import database_now_ms
from events.database import Database
from events.errors import Fenced, Transient
from events.event import Position, Recorded
from events.log.backlog import read_backlog
from events.log.client import AnyRedis
from events.log.log import WATCHDOG
from projections.engine import ownership
from projections.engine.source import ArchiveSource, DenseReader
from services.logs import brief
from services.reactors.checkpoints import Claim, advance, introduce_names, take_over
from services.reactors.derived import derived_id
from services.reactors.partition import Outlet
from services.reactors.reactor import read_recorded
from services.reactors.watching import Life, RunKey, Watch

NAME = "watchdog"
READ = 2_000
PAGE = 1_000
LOOK_S = 5.0
"""How often it looks, at most; runs with a short limit are looked at four times within it."""
STALLED_S = 30.0
"""How long the archive may take to come as far as the log was; longer, and silence proves nothing."""

_log = logging.getLogger("refold.watchdog")


class _Horizon(NamedTuple):
    """How long the log was at a moment: once that is read, everything received before it is known."""

    now_ms: int
    ends: Mapping[int, Position]


@dataclass
class Watchdog:
    """Watches for runs without a sign of life for ``limit_s``. ``owner`` names this life of the process."""

    db: Database
    redis: AnyRedis
    outlet: Outlet
    owner: str
    limit_s: float
    lease_s: float = 10.0
    _claims: dict[int, Claim] = field(default_factory=dict)
    _watches: dict[int, Watch] = field(default_factory=dict)
    _readers: dict[int, DenseReader] = field(default_factory=dict)
    _since_ms: int = 0
    _horizon: _Horizon | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Watch, or stand by, until ``stopping``; raises when the store cannot be used."""
        pause_s = min(LOOK_S, self.limit_s / 4, self.lease_s / 3)
        try:
            while not stopping.is_set():
                try:
                    if await self.db.write(self._hold):
                        await self._look()
                    else:
                        self._watches.clear()
                except Fenced as fenced:
                    _log.info("%s", brief(fenced))
                    self._watches.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause_s)
        finally:
            await self.db.write(lambda conn: ownership.release(conn, NAME, 0, self.owner))

    def _hold(self, conn: Connection) -> bool:
        return ownership.acquire(conn, NAME, 0, self.owner, self.lease_s)

    async def _look(self) -> None:
        if not self._watches:
            await self._begin()
        marks = await self.db.read(queries.read_watermarks)
        for partition in self._watches:
            await self._read_on(partition)
        await self._judge(marks)
        await self._commit()

    async def _begin(self) -> None:
        """Take every partition over, from its checkpoint on."""

        def work(conn: Connection) -> tuple[list[Claim], int]:
            introduce_names(conn, [(NAME, False)])
            claims = [take_over(conn, NAME, partition) for partition in sorted(queries.read_watermarks(conn))]
            return claims, database_now_ms(conn)

        claims, self._since_ms = await self.db.write(work)
        self._claims = {claim.partition: claim for claim in claims}
        self._watches = {claim.partition: Watch(claim.position, read_recorded) for claim in claims}
        self._readers = {p: DenseReader(ArchiveSource(self.db), p) for p in self._claims}
        self._horizon = None

    async def _read_on(self, partition: int) -> None:
        watch = self._watches[partition]
        while batch := await asyncio.to_thread(self._readers[partition].read, watch.position, READ):
            for archived in batch:
                watch.see(archived)
            for key in list(watch.strangers):
                watch.meet(key, await self._events(key, partition))
            if len(batch) < READ:
                return
            if not await self.db.write(self._hold):
                raise Fenced("the watchdog's lease is somebody else's")

    async def _events(self, key: RunKey, partition: int) -> list[Recorded]:
        """The events of a run in its task's partition, up to what is read of it."""
        archive, events, after = Archive(self.db), list[Recorded](), None
        while page := await archive.run_events(key.org, key.run, after=after, limit=PAGE):
            after = (page[-1].partition, page[-1].position)
            here = [a for a in page if a.partition == partition and a.position <= self._watches[partition].position]
            events += [recorded for archived in here if (recorded := read_recorded(archived)) is not None]
        return [recorded for recorded in events if recorded.event.task == key.task]

    async def _judge(self, read_to: Mapping[int, Position]) -> None:
        """Give up the runs that were silent at the horizon, once all before it is read; then look for the next one."""
        horizon = self._horizon
        if horizon is not None and all(read_to[p] >= horizon.ends[p] for p in self._watches):
            lives = [
                # an epoch that has begun since is read as far as it was, too, though nothing may stand in it yet
                (life, max(watch.position, read_to[partition]))
                for partition, watch in self._watches.items()
                for life in watch.silent(horizon.now_ms, self._since_ms, self.limit_s)
            ]
            if lives:
                await self.outlet.append([self._lost(life, seen_to) for life, seen_to in lives])
                _log.info("%d runs were silent for %.0f s: they count as lost", len(lives), self.limit_s)
            for life, _ in lives:
                life.told_ms = horizon.now_ms
            self._horizon = horizon = None
        now_ms = await self.db.read(database_now_ms)
        if horizon is not None and now_ms - horizon.now_ms <= STALLED_S * 1000:
            return
        if horizon is not None:
            self._since_ms = now_ms
        self._horizon = await self._ask(now_ms)

    async def _ask(self, now_ms: int) -> _Horizon | None:
        """How long the log is now; None, and everybody's time anew, when nobody can tell."""
        marks = await self.db.read(queries.read_watermarks)
        try:
            backlog = await read_backlog(self.redis, marks)
        except Transient:
            backlog = {}
        ends = {
            p: Position(mark.epoch, mark.n + waiting)
            for p, mark in marks.items()
            if p in backlog and (waiting := backlog[p].waiting) is not None
        }
        if ends.keys() != marks.keys():
            self._since_ms = now_ms
            return None
        return _Horizon(now_ms, ends)

    def _lost(self, life: Life, seen_to: Position) -> dict[str, Any]:
        """The end of a run. The log stores it only if the run has not spoken meanwhile."""
        last = life.last
        names = {name: getattr(last, name) for name in ("org", "agent", "user", "session", "task", "run")}
        return {
            "id": derived_id(NAME, last),
            "type": "run.terminated",
            "source": WATCHDOG,
            "time": last.time,
            "causation": last.id,
            "correlation": last.correlation or last.run,
            "data": {
                "reason": "lost",
                "detail": f"no sign of life for {self.limit_s:g} s",
                "seen_to": str(seen_to),
            },
            **{name: value for name, value in names.items() if value},
        }

    async def _commit(self) -> None:
        moved = {p: w.low_water() for p, w in self._watches.items() if w.low_water() > self._claims[p].position}
        if moved:
            self._claims |= await self.db.write(partial(self._advance, moved=moved))

    def _advance(self, conn: Connection, moved: Mapping[int, Position]) -> dict[int, Claim]:
        return {p: advance(conn, self._claims[p], position) for p, position in sorted(moved.items())}
