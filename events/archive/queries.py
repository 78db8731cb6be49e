"""Queries of the archive: pure functions on a Connection.

Tenants are walls: every read by a name takes the org that owns it. Reading by position is for the engine and admins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, select, tuple_

from events.archive.schema import IS_RUN_START, OF_A_RUN, event_ids, event_log, log_epochs, log_watermarks
from events.archive.store import First
from events.bulk import bulk_select
from events.event import Event, Position, Recorded
from events.registry import decode_payload

Verdict = Literal["effective", "duplicate_of", "conflict_with", "erased_by"]

_EVENT_COLUMNS = tuple(event_log.c[name] for name in Event.__struct_fields__)
_HEAD = 7
_COLUMNS = (
    event_log.c.partition, event_log.c.epoch, event_log.c.n, event_log.c.verdict, event_log.c.ref_epoch,
    event_log.c.ref_n, event_log.c.received_ms, *_EVENT_COLUMNS,
)  # fmt: skip
_HERE = tuple_(event_log.c.epoch, event_log.c.n)
_new_event: Callable[..., Event] = Event
_new_position: Callable[[type[Position], Sequence[Any]], Position] = tuple.__new__
_TYPE, _DATA = (_HEAD + Event.__struct_fields__.index(name) for name in ("type", "data"))
_COUNTED = event_log.c.verdict.in_(("effective", "erased_by"))
"""An attempt, and a number in a run, stay taken when their events are erased."""


class Archived:
    """One archived position. Event and payload are made when asked for: readers pass over types they do not handle."""

    __slots__ = ("_event", "_recorded", "_row")

    def __init__(self, row: Sequence[Any]) -> None:
        self._row = row
        self._event: Event | None = None
        self._recorded: Recorded | None = None

    @property
    def partition(self) -> int:
        """Partition of the log."""
        return int(self._row[0])

    @property
    def position(self) -> Position:
        """Position in the partition."""
        return _new_position(Position, self._row[1:3])

    @property
    def verdict(self) -> Verdict:
        """``effective``, or what it is of ``first``."""
        verdict: Verdict = self._row[3]
        return verdict

    @property
    def type(self) -> str:
        """Type of the event."""
        return str(self._row[_TYPE])

    @property
    def first(self) -> Position | None:
        """The position of the event that this one repeats, conflicts with or was erased by; else None."""
        return None if self._row[4] is None else Position(self._row[4], self._row[5])

    @property
    def received_ms(self) -> int:
        """When it was archived, in Unix milliseconds."""
        return int(self._row[6])

    @property
    def size(self) -> int:
        """Characters of the event's data."""
        return len(self._row[_DATA])

    def event(self) -> Event:
        """The event itself."""
        if self._event is None:
            # by position: this is on the path of every event of a rebuild. SQLite has no booleans
            self._event = _new_event(*self._row[_HEAD:-1], self._row[-1] == 1)
        return self._event

    def recorded(self) -> Recorded:
        """The event with its payload, as a fold sees it; made once for all who ask. Raises as ``decode_payload``."""
        if self._recorded is None:
            event = self.event()
            self._recorded = Recorded(self._row[0], self.position, event, decode_payload(event))
        return self._recorded


class Verdicted(NamedTuple):
    """What the archive says of one position."""

    verdict: Verdict
    first: Position | None


class RunSummary(NamedTuple):
    """One run in the index of an org: as its ``run.started`` says."""

    task: str
    run: str
    agent: str
    user: str
    session: str
    time: str
    received_ms: int
    data: str


def read_watermarks(conn: Connection) -> dict[int, Position]:
    """The last archived position of each partition."""
    rows = conn.execute(select(log_watermarks.c.partition, log_watermarks.c.epoch, log_watermarks.c.n))
    return {partition: Position(epoch, n) for partition, epoch, n in rows}


_LAST_OF_KEY = (
    select(event_log.c.epoch, event_log.c.n, event_log.c.seq)
    .where(event_log.c.org == bindparam("of_org"), event_log.c.key == bindparam("of_key"))
    .order_by(event_log.c.epoch.desc(), event_log.c.n.desc())
    .limit(1)
)


class LastOfKey(NamedTuple):
    """Where the last event of a key stands, and the number that it bears in its run (0: none)."""

    position: Position
    seq: int


def last_of_key(conn: Connection, org: str, key: str) -> LastOfKey | None:
    """The last event that the archive holds of a partition key; None while there is none."""
    row = conn.execute(_LAST_OF_KEY, {"of_org": org, "of_key": key}).first()
    return None if row is None else LastOfKey(Position(row.epoch, row.n), row.seq)


def last_archived(conn: Connection, partition: int) -> Position | None:
    """The last entry that the archive holds of a partition, whatever epoch is open now; None while there is none."""
    table = event_log.c
    query = select(table.epoch, table.n).where(table.partition == partition)
    row = conn.execute(query.order_by(table.epoch.desc(), table.n.desc()).limit(1)).first()
    return None if row is None else Position(*row)


def read_epochs(conn: Connection) -> dict[int, dict[int, int | None]]:
    """For each partition its epochs and the n that each ended at; None for the open one."""
    epochs: dict[int, dict[int, int | None]] = {}
    for partition, epoch, end in conn.execute(
        select(log_epochs.c.partition, log_epochs.c.epoch, log_epochs.c.ended_at_n).order_by(log_epochs.c.epoch)
    ):
        epochs.setdefault(partition, {})[epoch] = end
    return epochs


def count_events(conn: Connection) -> int:
    """How many positions the archive holds: a sum over epochs, for positions are dense."""
    marks = read_watermarks(conn)
    ended = sum(end + 1 for epochs in read_epochs(conn).values() for end in epochs.values() if end is not None)
    return ended + sum(n + 1 for epoch, n in marks.values())


def read_log(
    conn: Connection, partition: int, after: Position, limit: int, upto: Position | None = None
) -> list[Archived]:
    """The positions of a partition that follow ``after``, in order."""
    # Dense positions: within an epoch the next ones have known numbers. A range that is closed at both ends is read
    # through the index under any plan; without its upper end, PostgreSQL sorts all that follows until the table has
    # been analysed.
    (epoch, n), table = after, event_log.c
    upper = n + limit if upto is None or upto.epoch != epoch else min(n + limit, upto.n)
    query = select(*_COLUMNS).where(table.partition == partition, table.epoch == epoch, table.n > n, table.n <= upper)
    found = _archived(conn, query.order_by(table.n))
    last = Position(epoch, upper)
    if len(found) == limit or last == upto:
        return found
    # where an epoch ends, and where rows are missing
    return found + _following(conn, table.partition == partition, last, limit - len(found), upto)


def _following(
    conn: Connection, whose: ColumnElement[bool], after: Position, limit: int, upto: Position | None
) -> list[Archived]:
    """The events of ``whose`` that follow ``after``, in order, none past ``upto``, whatever their numbers."""
    query = select(*_COLUMNS).where(whose, tuple_(*after) < _HERE)
    if upto is not None:
        query = query.where(tuple_(*upto) >= _HERE)
    return _archived(conn, query.order_by(event_log.c.epoch, event_log.c.n).limit(limit))


def _preceding(conn: Connection, whose: ColumnElement[bool], before: Position | None, limit: int) -> list[Archived]:
    """The events of ``whose`` that come before ``before`` (None: the last ones), the newest first."""
    query = select(*_COLUMNS).where(whose)
    if before is not None:
        query = query.where(tuple_(*before) > _HERE)
    return _archived(conn, query.order_by(event_log.c.epoch.desc(), event_log.c.n.desc()).limit(limit))


def _of_key(org: str, key: str) -> ColumnElement[bool]:
    return and_(event_log.c.org == org, event_log.c.key == key)


def read_type(conn: Connection, partition: int, type: str, after: Position) -> list[Archived]:
    """The effective events of a type in a partition that follow ``after``. Goes through all that do: for rare types."""
    here = tuple_(event_log.c.epoch, event_log.c.n)
    query = select(*_COLUMNS).where(event_log.c.partition == partition, here > tuple_(*after))
    query = query.where(event_log.c.type == type, event_log.c.verdict == "effective")
    return _archived(conn, query.order_by(event_log.c.epoch, event_log.c.n))


def read_key(
    conn: Connection, org: str, key: str, after: Position, limit: int, upto: Position | None = None
) -> list[Archived]:
    """The events of a partition key that follow ``after``, in order, none past ``upto``; whatever their verdict."""
    return _following(conn, _of_key(org, key), after, limit, upto)


def read_key_back(conn: Connection, org: str, key: str, before: Position | None, limit: int) -> list[Archived]:
    """The events of a partition key that come before ``before`` (None: the last ones), the newest first."""
    return _preceding(conn, _of_key(org, key), before, limit)


def read_key_type(conn: Connection, org: str, key: str, type: str) -> list[Archived]:
    """The effective events of a type and a partition key, in order. Goes through all events of the key."""
    query = select(*_COLUMNS).where(event_log.c.org == org, event_log.c.key == key)
    query = query.where(event_log.c.type == type, event_log.c.verdict == "effective")
    return _archived(conn, query.order_by(event_log.c.epoch, event_log.c.n))


def count_key(conn: Connection, org: str, key: str, upto: Position, most: int) -> int:
    """How many events a partition key has up to a position; counts no further than ``most``."""
    here = tuple_(event_log.c.epoch, event_log.c.n)
    query = select(event_log.c.n).where(event_log.c.org == org, event_log.c.key == key, here <= tuple_(*upto))
    return int(conn.execute(select(func.count()).select_from(query.limit(most).subquery())).scalar_one())


def read_back(conn: Connection, partition: int, before: Position | None, limit: int) -> list[Archived]:
    """The positions of a partition that come before ``before`` (None: the last ones), the newest first."""
    return _preceding(conn, event_log.c.partition == partition, before, limit)


def read_verdicts(conn: Connection, partition: int, positions: Sequence[Position]) -> dict[Position, Verdicted]:
    """The verdicts of those positions that are archived."""
    columns = ("epoch", "n", "verdict", "ref_epoch", "ref_n")
    keys = [(partition, *position) for position in positions]
    found = bulk_select(conn, event_log, columns, ("partition", "epoch", "n"), keys)
    return {
        Position(epoch, n): Verdicted(verdict, None if ref_epoch is None else Position(ref_epoch, ref_n))
        for epoch, n, verdict, ref_epoch, ref_n in found
    }


def read_run(conn: Connection, org: str, run: str, after: tuple[int, Position] | None, limit: int) -> list[Archived]:
    """The events of a run by partition and position."""
    place = (event_log.c.partition, event_log.c.epoch, event_log.c.n)
    query = select(*_COLUMNS).where(event_log.c.org == org, event_log.c.run == run, OF_A_RUN)
    if after is not None:
        query = query.where(tuple_(*place) > tuple_(after[0], *after[1]))
    return _archived(conn, query.order_by(*place).limit(limit))


def read_runs(conn: Connection, org: str, limit: int, task: str | None = None) -> list[RunSummary]:
    """The runs of an org (of one task) that started last, the newest first."""
    query = select(*(event_log.c[name] for name in RunSummary._fields)).where(
        event_log.c.org == org, event_log.c.verdict == "effective", IS_RUN_START
    )
    if task is not None:
        query = query.where(event_log.c.task == task)
    order = (event_log.c.received_ms.desc(), event_log.c.partition, event_log.c.epoch.desc(), event_log.c.n.desc())
    return [RunSummary(*row) for row in conn.execute(query.order_by(*order).limit(limit))]


def read_ids(conn: Connection, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], First]:
    """Where events stand first, by (org, key, id)."""
    columns = ("org", "key", "id", "epoch", "n", "digest")
    found = bulk_select(conn, event_ids, columns, ("org", "key", "id"), wanted)
    return {(org, key, id_): First(Position(epoch, n), digest) for org, key, id_, epoch, n, digest in found}


def read_attempts(conn: Connection, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """The attempts of tasks, by (org, task): (attempt, run), in the order in which they were accepted."""
    attempts: dict[tuple[str, str], list[tuple[int, str]]] = {}
    query = (
        select(event_log.c.run, event_log.c.data)
        .where(event_log.c.org == bindparam("org"), event_log.c.task == bindparam("task"))
        .where(_COUNTED, IS_RUN_START)
        .order_by(event_log.c.epoch, event_log.c.n)
    )
    for org, task in wanted:
        for run, data in conn.execute(query, {"org": org, "task": task}):
            attempts.setdefault((org, task), []).append((orjson.loads(data).get("attempt", 1), run))
    return attempts


def read_starts(conn: Connection, org: str, task: str) -> list[tuple[Position, str, str]]:
    """The ``run.started`` of a task in their order: position, run, data."""
    query = (
        select(event_log.c.epoch, event_log.c.n, event_log.c.run, event_log.c.data)
        .where(event_log.c.org == org, event_log.c.task == task)
        .where(event_log.c.verdict == "effective", IS_RUN_START)
        .order_by(event_log.c.epoch, event_log.c.n)
    )
    return [(Position(epoch, n), run, data) for epoch, n, run, data in conn.execute(query)]


def read_last_seqs(conn: Connection, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    """The highest ``seq`` of runs, by (org, task, run)."""
    query = (
        select(func.max(event_log.c.seq))
        .where(event_log.c.org == bindparam("org"), event_log.c.run == bindparam("run"), OF_A_RUN)
        .where(event_log.c.task == bindparam("task"), _COUNTED)
    )
    seqs: dict[tuple[str, str, str], int] = {}
    for org, task, run in wanted:
        highest = conn.execute(query, {"org": org, "task": task, "run": run}).scalar()
        if highest:
            seqs[(org, task, run)] = highest
    return seqs


def _archived(conn: Connection, query: Select[Any]) -> list[Archived]:
    """The rows as the driver gives them: SQLAlchemy's own rows would halve the speed of every rebuild."""
    result = conn.execute(query)
    cursor: Any = result.cursor
    rows = cursor.fetchall()
    result.close()
    return [Archived(row) for row in rows]
