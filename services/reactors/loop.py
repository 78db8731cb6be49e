"""Which reactor runs where: leases share the pairs of reactor and partition among the processes that are alive.

The lease only decides who tries. That a reaction takes effect once follows from its derived ids, and that checkpoints
never go back from their compare-and-set. Reactors read the log and append to it; no rebuild ever comes here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection

from events.archive.reader import Archive
from events.database import Database
from events.errors import Fenced
from projections.engine import ownership
from projections.engine.memo import Shared
from projections.engine.source import ArchiveSource, DenseReader
from services.logs import brief
from services.reactors.checkpoints import introduce
from services.reactors.partition import POLL_S, Outlet, PartitionRun
from services.reactors.reactor import Outside, Reactor

GROUP = "reactors"

_log = logging.getLogger("refold.reactors")

Unit = tuple[str, int]
"""A lease: ``reactor/<key>`` and the partition."""


@dataclass
class _Running:
    task: asyncio.Task[None]
    stopping: asyncio.Event
    wake: asyncio.Event


@dataclass
class ReactorLoop:
    """Runs this process's share of the reactors. ``owner`` names this life of the process, for its leases."""

    db: Database
    outlet: Outlet
    reactors: Sequence[Reactor]
    partitions: int
    owner: str
    lease_s: float = 10.0
    concurrency: int = 16
    outside: Outside = field(default_factory=Outside)
    _running: dict[Unit, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # all reactors follow the same events, so they are read once
        self._source = Shared(ArchiveSource(self.db), POLL_S / 2)
        # one archive for all partitions: what a reactor remembers of a scope, it remembers by archive
        self._archive = Archive(self.db)

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping``; raises when the store cannot be used, for the supervisor to start it again."""
        by_unit = {(f"reactor/{r.key}", p): r for r in self.reactors for p in range(self.partitions)}
        slots = {reactor.name: asyncio.Semaphore(self.concurrency) for reactor in self.reactors}
        await self.db.write(lambda conn: introduce(conn, self.reactors))
        try:
            while not stopping.is_set():
                # apart, so that each transaction locks leases in one order: or PostgreSQL ends one as a deadlock
                held = await self.db.write(self._renew)
                mine = await self.db.write(partial(self._share, units=sorted(by_unit), held=held))
                await self._give_up([unit for unit in self._running if unit not in mine or self._ended(unit)])
                for unit in mine - self._running.keys():
                    self._start(unit, by_unit[unit], slots[by_unit[unit].name])
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), self.lease_s / 3)
        finally:
            await self._give_up(list(self._running))
            await self.db.write(lambda conn: ownership.leave(conn, GROUP, self.owner))

    def wake(self, partition: int | None = None) -> None:
        """The archive has advanced in a partition (None: perhaps in any)."""
        for each in range(self.partitions) if partition is None else (partition,):
            self._source.moved(each)
        for (_, of), running in self._running.items():
            if partition is None or of == partition:
                running.wake.set()

    def _renew(self, conn: Connection) -> set[Unit]:
        """Be counted, and keep what is held: that is what it returns."""
        ownership.join(conn, GROUP, self.owner, self.lease_s)
        return ownership.renew(conn, self.owner, self.lease_s)

    def _share(self, conn: Connection, units: Sequence[Unit], held: set[Unit]) -> set[Unit]:
        """The units that are this process's now: those held already, up to the fair share, and free ones up to it."""
        share = ownership.fair_share(len(units), len(ownership.survey(conn, GROUP, self.lease_s).workers))
        mine = set([unit for unit in units if unit in held][:share])
        # not even tried where somebody holds it: of two that each try the other's, PostgreSQL ends one as a deadlock
        names = {name for name, _ in units}
        taken = {(name, p) for name in names for p in ownership.survey(conn, name, self.lease_s).owners}
        for unit in units:
            if len(mine) >= share:
                break
            if unit not in mine | taken and ownership.acquire(conn, *unit, self.owner, self.lease_s):
                mine.add(unit)
        for unit in sorted(held & set(units) - mine - self._running.keys()):
            # beyond the share and not at work, since an answer of the store got lost: others may have it
            ownership.release(conn, *unit, self.owner)
        return mine

    def _start(self, unit: Unit, reactor: Reactor, slots: asyncio.Semaphore) -> None:
        stopping, wake = asyncio.Event(), asyncio.Event()
        run = PartitionRun(
            reactor, unit[1], self.db, self._archive, DenseReader(self._source, unit[1]), self.outlet,
            slots, wake, self.outside,
        )  # fmt: skip
        self._running[unit] = _Running(asyncio.create_task(run.run(stopping)), stopping, wake)

    def _ended(self, unit: Unit) -> bool:
        task = self._running[unit].task
        if not task.done():
            return False
        error = task.exception()
        level = logging.INFO if isinstance(error, Fenced) else logging.WARNING
        _log.log(level, "%s of partition %d ended: %s", *unit, brief(error) if error else "by itself")
        return True

    async def _give_up(self, units: Sequence[Unit]) -> None:
        """Stop runs and let others have them at once."""
        for unit in units:
            self._running[unit].stopping.set()
        await asyncio.gather(*(self._running[unit].task for unit in units), return_exceptions=True)
        for unit in units:
            del self._running[unit]
        if units:
            await self.db.write(lambda conn: self._release(conn, units))

    def _release(self, conn: Connection, units: Sequence[Unit]) -> None:
        for unit in sorted(units):  # in the order in which others acquire them
            ownership.release(conn, *unit, self.owner)
