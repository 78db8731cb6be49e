"""Reading: the active generation of each read model, read-your-writes, and how far everything is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from events.archive import queries
from events.database import Database, Stores
from events.errors import Refused, Transient
from events.event import START, Position
from events.tokens import read_token
from projections import generations
from projections.engine import checkpoints, ownership, tables
from projections.engine.source import lag
from projections.generations import Generation
from projections.projection import Projection

T = TypeVar("T")

FIRST_WAIT_S = 0.002
LAST_WAIT_S = 0.05

State = Literal["live", "stale", "rebuilding", "abandoned", "paused", "missing"]


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


@dataclass(frozen=True)
class ProjectionStatus:
    """One read model: how many events behind the archive, for how many seconds, and what it waits for.

    ``state``: ``live``; ``stale`` (other code made it: rebuild); ``rebuilding``; ``abandoned`` (a rebuild whose
    builder died or stands still); ``paused`` (``reason`` says why); ``missing`` (it has no generation yet).
    ``progress`` is that of a rebuild which is not done.
    """

    name: str
    generation: int
    state: State
    lag_events: int
    lag_s: float
    dead_letters: int
    parked_keys: int
    reason: str = ""
    progress: Mapping[str, Any] | None = None


@dataclass
class _Open:
    generation: Generation
    db: Database
    stale: bool


class ReadModels:
    """The active generation of each projection, open for reading. Follows every flip before the next read."""

    def __init__(self, projections: Iterable[Projection], stores: Stores, log: Database) -> None:
        self._projections = {projection.name: projection for projection in projections}
        self._stores = stores
        self._log = log
        self._open: dict[str, _Open] = {}
        self._closing: list[Database] = []

    async def read(
        self,
        name: str,
        work: Callable[[Connection], T],
        after: str | None = None,
        timeout_s: float = 5.0,
    ) -> Read[T]:
        """``work`` on one snapshot of the read model, once that has passed the position token ``after``.

        Waits at most ``timeout_s`` seconds for that; then reads all the same and says so. Raises Refused for an
        unknown read model or token, Transient while it has no generation yet.
        """
        wanted = read_token(after) if after else {}
        deadline = time.monotonic() + timeout_s
        wait_s = FIRST_WAIT_S
        while True:
            last = time.monotonic() >= deadline
            found = await self._attempt(name, work, wanted, last)
            if found is not None:
                return found
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LAST_WAIT_S)

    async def status(self) -> list[ProjectionStatus]:
        """All read models, as ``refold status`` shows them."""
        marks, epochs = await self._log.read(lambda conn: (queries.read_watermarks(conn), queries.read_epochs(conn)))
        return [await self._status(name, marks, epochs) for name in self._projections]

    def close(self) -> None:
        """Close every generation that was opened."""
        for each in [*self._closing, *(opened.db for opened in self._open.values())]:
            each.close()
        self._open.clear()
        self._closing.clear()

    async def _attempt(
        self, name: str, work: Callable[[Connection], T], wanted: Mapping[int, Position], last: bool
    ) -> Read[T] | None:
        """One try; None when the read model is not far enough and time is left."""
        opened = await self._active(name, refresh=False)
        try:
            outcome = await opened.db.read(partial(_read, opened, work, wanted, last))
        except SQLAlchemyError:
            # a generation that was dropped since: its tables are gone
            current = await self._active(name, refresh=True)
            if current is opened:
                raise
            outcome = await current.db.read(partial(_read, current, work, wanted, last))
        if outcome.sealed:
            # another generation takes this one's place, or has: the registry knows
            current = await self._active(name, refresh=True)
            if current is not opened:
                outcome = await current.db.read(partial(_read, current, work, wanted, last))
        return outcome.read

    async def _active(self, name: str, *, refresh: bool) -> _Open:
        if name not in self._projections:
            known = ", ".join(sorted(self._projections))
            raise Refused(f"there is no read model {name!r}; there are {known}", code="unknown_projection")
        opened = self._open.get(name)
        if opened is not None and not refresh:
            return opened
        generation = await self._log.read(partial(generations.active, projection=name))
        if generation is None:
            raise Transient(f"{name} has no generation yet: a projector makes it when it starts")
        current = self._open.get(name)
        if current is not None:
            if current.generation.number == generation.number:
                return current
            self._closing.append(current.db)
        db = self._stores.generation(generation.name)
        self._open[name] = _Open(generation, db, not generation.matches(self._projections[name]))
        return self._open[name]

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
        vector, paused, letters, parked = await opened.db.read(_state)
        behind = {p: lag(position, marks.get(p, position), epochs.get(p, {})) for p, position in vector.items()}
        oldest = {p: vector[p] for p, events in behind.items() if events}
        waiting_s = await self._log.read(lambda conn: _waiting_s(conn, oldest)) if oldest else 0.0
        state: State = "live"
        if building is not None:
            state = "rebuilding" if built else "abandoned"
        elif opened.stale:
            state = "stale"
        elif paused:
            state = "paused"
        reason = why_abandoned(name) if state == "abandoned" else paused
        if not reason and opened.stale:
            reason = why_stale(name, rebuilding=building is not None)
        return ProjectionStatus(
            name, opened.generation.number, state, sum(behind.values()), waiting_s, letters, parked, reason, progress
        )


def find_building(conn: Connection, projection: str) -> tuple[Generation | None, bool]:
    """The generation that is being built, or was when its builder died; and whether a builder is at it."""
    return generations.building(conn, projection), ownership.is_held(conn, ownership.rebuild_lease(projection))


def why_abandoned(name: str) -> str:
    """What is said of a rebuild that nobody is at."""
    return f"the process that rebuilt it died or stands still: run `refold rebuild {name}` to continue its work"


def why_stale(name: str, *, rebuilding: bool) -> str:
    """What is said of a generation that other code made."""
    return "made by other code: " + ("it is being rebuilt" if rebuilding else f"run `refold rebuild {name}`")


class _Outcome(NamedTuple, Generic[T]):
    read: Read[T] | None
    sealed: bool


def _read(
    opened: _Open, work: Callable[[Connection], T], wanted: Mapping[int, Position], last: bool, conn: Connection
) -> _Outcome[T]:
    positions, sealed = _positions(conn)
    reached = all(p in positions and positions[p] >= position for p, position in wanted.items())
    if not reached and not last:
        return _Outcome(None, sealed)
    return _Outcome(Read(work(conn), opened.generation.name, reached, positions, opened.stale), sealed)


def _positions(conn: Connection) -> tuple[dict[int, Position], bool]:
    table = tables.checkpoints
    rows = conn.execute(select(table.c.partition, table.c.epoch, table.c.n, table.c.sealed)).all()
    return {p: Position(epoch, n) for p, epoch, n, _ in rows}, any(sealed for *_, sealed in rows)


def _state(conn: Connection) -> tuple[dict[int, Position], str, int, int]:
    paused = conn.execute(select(tables.checkpoints.c.paused).where(tables.checkpoints.c.paused != "")).scalars()
    return (
        checkpoints.read_vector(conn),
        next(iter(paused), ""),
        checkpoints.count(conn, tables.dead_letters),
        checkpoints.count(conn, tables.parked_keys),
    )


def _waiting_s(conn: Connection, after: Mapping[int, Position]) -> float:
    """Age of the oldest archived event that is not folded yet, in seconds."""
    received = []
    for partition, position in after.items():
        following = queries.read_log(conn, partition, position, 1)
        received += [archived.received_ms for archived in following]
    return max(0.0, time.time() - min(received) / 1000) if received else 0.0
