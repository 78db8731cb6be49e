"""How far the reactors are behind the archive, and who runs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, select

from events.archive.queries import read_epochs, read_watermarks
from events.archive.schema import reactor_checkpoints
from events.event import Position
from projections.engine import reports
from projections.engine.source import lag
from projections.status import oldest_waiting_s
from services.reactors.reactor import Reactor


class ReactorStatus(NamedTuple):
    """One reactor over all partitions. What it holds back until a time of its own counts as lag, too.

    ``unowned`` are the partitions that no live worker runs it over.
    """

    name: str
    lag_events: int
    lag_s: float
    workers: int
    unowned: int


def read_reactors(conn: Connection, reactors: Iterable[Reactor]) -> list[ReactorStatus]:
    """The reactors, in one snapshot."""
    marks, epochs = read_watermarks(conn), read_epochs(conn)
    return [_status(conn, reactor, marks, epochs) for reactor in reactors]


def _status(
    conn: Connection, reactor: Reactor, marks: dict[int, Position], epochs: dict[int, dict[int, int | None]]
) -> ReactorStatus:
    table = reactor_checkpoints.c
    rows = conn.execute(select(table.partition, table.epoch, table.n).where(table.reactor == reactor.key))
    vector = {partition: Position(epoch, n) for partition, epoch, n in rows}
    behind = {p: lag(at, marks.get(p, at), epochs.get(p, {})) for p, at in vector.items()}
    ages = oldest_waiting_s(conn, {p: vector[p] for p, events in behind.items() if events})
    held = reports.holdings(conn, f"reactor/{reactor.key}")
    return ReactorStatus(
        reactor.name,
        sum(behind.values()),
        max(ages.values(), default=0.0),
        len({holding.owner for holding in held.values()}),
        len(vector.keys() - held.keys()),
    )
