"""The state of the whole backend at one moment, from the stores that all processes share. For people and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, func, select

from events.archive.queries import count_events, read_watermarks
from events.archive.schema import refused_events
from events.archive.unknown_types import UnknownType, count_all_unknown, read_unknown
from events.errors import RefoldError, Transient
from events.event import Position
from events.log.backlog import Backlog, memory_bytes, read_backlog
from projections.queries.settlements import settled_by_outcome
from projections.status import ProjectionStatus
from services.composition import Backend
from services.reactors.registry import REACTORS
from services.reactors.status import ReactorStatus, read_reactors

T = TypeVar("T")

SETTLEMENTS = "settlements"

PATIENCE_S = 4.0
"""How long a store may take to answer before it counts as away. Whoever asks for metrics waits 10 s, for both."""

TYPES = 20
"""Unknown event types that are named; the rest is one number."""


@dataclass(frozen=True)
class Stored:
    """What the log store tells: ``refused`` counts all ever, ``unknown_events`` those of all unknown types."""

    events: int
    marks: Mapping[int, Position]
    refused: int
    unknown: Sequence[UnknownType]
    unknown_events: int
    reactors: Sequence[ReactorStatus]


@dataclass(frozen=True)
class LogState:
    """What Redis tells."""

    partitions: Mapping[int, Backlog]
    memory_bytes: int

    @property
    def waiting(self) -> int | None:
        """Entries that are not archived; None while a partition waits for recovery."""
        counts = [each.waiting for each in self.partitions.values()]
        return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(frozen=True)
class Overview:
    """The parts that could be asked; None for those that do not answer.

    ``settled`` counts settled runs: under ``""`` with notes, else by the reason that there is only evidence.
    """

    stored: Stored | None
    log: LogState | None
    projections: Sequence[ProjectionStatus] | None
    settled: Mapping[str, int] | None = None


async def survey(backend: Backend) -> Overview:
    """Ask every store, whichever answers."""

    async def of_store() -> tuple[Stored, Sequence[ProjectionStatus], Mapping[str, int] | None]:
        return await backend.db.read(read_stored), await backend.read_models.status(), await read_settled(backend)

    try:
        stored, projections, settled = await soon(of_store())
    except RefoldError:
        # Redis may be well all the same
        return Overview(None, await read_log_state(backend, {}), None)
    return Overview(stored, await read_log_state(backend, stored.marks), projections, settled)


async def read_settled(backend: Backend) -> Mapping[str, int] | None:
    """How runs are settled, of all orgs; None where that read model is not there, or is of other code."""
    if SETTLEMENTS not in backend.projections:
        return None
    try:
        return (await backend.read_models.read(SETTLEMENTS, settled_by_outcome, None, 0)).value
    except RefoldError:
        return None


async def read_log_state(backend: Backend, marks: Mapping[int, Position]) -> LogState | None:
    """What Redis tells; None when it does not answer."""

    async def of_log() -> LogState:
        return LogState(await read_backlog(backend.redis, marks), await memory_bytes(backend.redis))

    try:
        return await soon(of_log())
    except RefoldError:
        return None


async def soon(asked: Awaitable[T]) -> T:
    """What was asked for. Raises Transient when it takes longer than PATIENCE_S, as where a server hangs."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await asked
    except TimeoutError:
        raise Transient(f"no answer within {PATIENCE_S:g} s") from None


def read_stored(conn: Connection) -> Stored:
    """What the log store tells, in one snapshot."""
    refused = conn.execute(select(func.max(refused_events.c.number))).scalar()
    unknown = read_unknown(conn, TYPES)
    return Stored(
        count_events(conn), read_watermarks(conn), refused or 0, unknown,
        count_all_unknown(conn) if len(unknown) == TYPES else sum(each.events for each in unknown),
        read_reactors(conn, REACTORS),
    )  # fmt: skip
