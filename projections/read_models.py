"""Reading: the active generation of each read model, read-your-writes, and how far everything is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from events.archive import queries
from events.archive.store import log_id
from events.database import Database, Stores
from events.errors import Refused, SetupError, Transient
from events.event import START, Position
from events.tokens import read_token
from projections import generations
from projections.engine import checkpoints, reports, tables
from projections.engine.source import lag
from projections.generations import Generation
from projections.old_shapes import OldShape, old_shape, reading
from projections.projection import Projection
from projections.status import (
    STUCK_S,
    ProjectionStatus,
    find_building,
    oldest_waiting_s,
    overall,
    partition_status,
    projection_status,
)

T = TypeVar("T")

FIRST_WAIT_S = 0.002
LAST_WAIT_S = 0.05

_CHECKPOINTS = select(*(tables.checkpoints.c[name] for name in ("partition", "epoch", "n", "sealed")))

UNFIT = (TypeError, KeyError, ValueError, AttributeError)
"""What reading raises when rows are not what it expects."""


@dataclass(frozen=True)
class Read(Generic[T]):
    """What a read found. ``reached`` is False when the read model had not passed ``after`` in time.

    ``positions`` is the checkpoint of each partition at the moment of the read; ``stale`` says that other code than
    the running one made the generation.
    """

    value: T
    generation: str
    reached: bool
    positions: Mapping[int, Position]
    stale: bool


@dataclass
class _Open:
    generation: Generation
    db: Database
    stale: bool
    shape: OldShape
    readers: int = 0
    replaced: bool = False

    async def read(self, work: Callable[[Connection], T]) -> T:
        """``work`` on one snapshot of it; whoever reads last what was replaced closes it."""
        self.readers += 1
        try:
            return await self.db.read(work)
        finally:
            self.readers -= 1
            self._close_if_left()

    def replace(self) -> None:
        """Nobody begins to read it any more. Its connections, and the room of its file, are given back."""
        self.replaced = True
        self._close_if_left()

    def _close_if_left(self) -> None:
        if self.replaced and not self.readers:
            # in a thread: a read whose caller was cancelled may still run
            asyncio.get_running_loop().run_in_executor(None, self.db.close)

    def borrowed(self, name: str) -> bool:
        """Whether it is another read model's, which ``name`` replaces: nothing seals it when that is built."""
        return self.generation.projection != name


class ReadModels:
    """The active generation of each projection, open for reading. Follows every flip before the next read."""

    def __init__(
        self, projections: Iterable[Projection], stores: Stores, log: Database, *, stuck_after_s: float = STUCK_S
    ) -> None:
        self._projections = {projection.name: projection for projection in projections}
        self._stores = stores
        self._log = log
        self._stuck_after_s = stuck_after_s
        self._log_id = ""
        self._open: dict[str, _Open] = {}

    async def read(
        self,
        name: str,
        work: Callable[[Connection], T],
        after: str | None = None,
        timeout_s: float = 5.0,
    ) -> Read[T]:
        """``work`` on one snapshot of the read model, once that has passed the position token ``after``.

        Waits at most ``timeout_s`` seconds for that; then reads all the same and says so, as for a position that
        recovery made void: its event was lost, or stands elsewhere by now. Raises Refused for an unknown read model,
        and for what is no token of this log; Transient while it has no generation yet.
        """
        wanted = read_token(after, await self._identity()) if after else {}
        deadline = time.monotonic() + timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            last = time.monotonic() >= deadline
            found = await self._attempt(name, work, wanted, last)
            if found is not None:
                return found if await self._are_valid(wanted, found) else replace(found, reached=False)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LAST_WAIT_S)

    async def status(self) -> list[ProjectionStatus]:
        """All read models, as ``refold status`` shows them."""
        marks, epochs = await self._log.read(lambda conn: (queries.read_watermarks(conn), queries.read_epochs(conn)))
        return [await self._status(name, marks, epochs) for name in self._projections]

    def close(self) -> None:
        """Close every generation that is open."""
        for opened in self._open.values():
            opened.db.close()
        self._open.clear()

    async def _are_valid(self, wanted: Mapping[int, Position], found: Read[T]) -> bool:
        """Whether no position of a token lies past the end of its epoch."""
        if all(position.epoch == found.positions[p].epoch for p, position in wanted.items()):
            return True
        epochs = await self._log.read(queries.read_epochs)
        ends = {p: epochs.get(p, {}).get(position.epoch) for p, position in wanted.items()}
        return all(end is None or wanted[p].n <= end for p, end in ends.items())

    async def _identity(self) -> str:
        self._log_id = self._log_id or await self._log.read(log_id)
        return self._log_id

    async def _attempt(
        self, name: str, work: Callable[[Connection], T], wanted: Mapping[int, Position], last: bool
    ) -> Read[T] | None:
        """One try; None when the read model is not far enough and time is left."""
        opened = await self._active(name, refresh=False)
        try:
            outcome = await opened.read(partial(_read, opened, work, wanted, last))
        except (SQLAlchemyError, SetupError):
            # a generation that was dropped since: its tables are gone, or its file
            current = await self._active(name, refresh=True)
            if current is opened:
                raise
            outcome = await current.read(partial(_read, current, work, wanted, last))
        if outcome.sealed:
            # another generation takes this one's place, or has: the registry knows
            current = await self._active(name, refresh=True)
            if current is not opened:
                outcome = await current.read(partial(_read, current, work, wanted, last))
        return outcome.read

    async def _active(self, name: str, *, refresh: bool) -> _Open:
        if name not in self._projections:
            known = ", ".join(sorted(self._projections))
            raise Refused(f"there is no read model {name!r}; there are {known}", code="unknown_projection")
        opened = self._open.get(name)
        if opened is not None and not refresh and not opened.borrowed(name):
            return opened
        projection = self._projections[name]
        generation = await self._log.read(partial(generations.serving, projection=projection))
        if generation is None:
            raise Transient(f"{name} has no generation yet: a projector makes it when it starts")
        current = self._open.get(name)
        if current is not None and current.generation.name == generation.name:
            return current
        opened = await self._opened(generation, projection)
        if self._open.get(name) is not current:
            # somebody else was quicker
            opened.replace()
            return self._open[name]
        if current is not None:
            current.replace()
        self._open[name] = opened
        return opened

    async def _opened(self, generation: Generation, projection: Projection) -> _Open:
        db = self._stores.generation(generation.name)
        opened = _Open(generation, db, stale=not generation.matches(projection), shape={})
        if opened.stale:
            try:
                opened.shape = await db.read(partial(old_shape, projection=projection))
            except BaseException:  # cancelled, too: nobody else knows of it
                opened.replace()
                raise
        return opened

    async def _status(
        self, name: str, marks: Mapping[int, Position], epochs: Mapping[int, Mapping[int, int | None]]
    ) -> ProjectionStatus:
        building, built = await self._log.read(partial(find_building, projection=name))
        progress = building.progress if building is not None else None
        try:
            opened = await self._active(name, refresh=True)
        except Transient:
            everything = sum(lag(START, mark, epochs.get(p, {})) for p, mark in marks.items())
            return ProjectionStatus(name, 0, "missing", everything, 0.0, 0, 0, "it has no generation yet", progress)
        found = await opened.read(partial(_state, shape=opened.shape))
        behind = {p: lag(position, marks.get(p, position), epochs.get(p, {})) for p, position in found.vector.items()}
        waiting = {p: found.vector[p] for p, events in behind.items() if events}
        ages, held = await self._log.read(
            lambda conn: (oldest_waiting_s(conn, waiting), reports.holdings(conn, opened.generation.name))
        )
        partitions = [
            partition_status(
                p, position, behind[p], ages.get(p, 0.0), held.get(p), found.paused.get(p, ""), self._stuck_after_s
            )
            for p, position in sorted(found.vector.items())
        ]
        state, reason = overall(name, partitions, building=building is not None, built=built, stale=opened.stale)
        return projection_status(
            name, opened.generation.number, state, partitions,
            dead_letters=found.letters, parked_keys=found.parked, reason=reason, progress=progress,
        )  # fmt: skip


class _Outcome(NamedTuple, Generic[T]):
    read: Read[T] | None
    sealed: bool


def _read(
    opened: _Open, work: Callable[[Connection], T], wanted: Mapping[int, Position], last: bool, conn: Connection
) -> _Outcome[T]:
    with reading(conn, opened.shape):
        positions, sealed = _positions(conn)
        if unknown := sorted(wanted.keys() - positions.keys()):
            raise Refused(f"this log has no partition {unknown[0]}: use a token of this backend", code="foreign_token")
        reached = all(positions[p] >= position for p, position in wanted.items())
        if not reached and not last:
            return _Outcome(None, sealed)
        try:
            value = work(conn)
        except UNFIT as error:
            if not opened.stale:
                raise
            name = opened.generation.name
            raise Transient(
                f"{name} was made by other code, and this code cannot read it: wait for its rebuild"
            ) from error
        return _Outcome(Read(value, opened.generation.name, reached, positions, opened.stale), sealed)


def _positions(conn: Connection) -> tuple[dict[int, Position], bool]:
    rows = conn.execute(_CHECKPOINTS).all()
    return {p: Position(epoch, n) for p, epoch, n, _ in rows}, any(sealed for *_, sealed in rows)


class _State(NamedTuple):
    vector: Mapping[int, Position]
    paused: Mapping[int, str]
    letters: int
    parked: int


def _state(conn: Connection, shape: OldShape) -> _State:
    with reading(conn, shape):
        table = tables.checkpoints
        paused = conn.execute(select(table.c.partition, table.c.paused).where(table.c.paused != "")).all()
        return _State(
            checkpoints.read_vector(conn),
            {partition: reason for partition, reason in paused},  # noqa: C416  mypy: a Row is no pair
            checkpoints.count(conn, tables.dead_letters),
            checkpoints.count(conn, tables.parked_keys),
        )
