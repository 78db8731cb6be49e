"""Erasing in the archive: an event that is erased keeps its place and its names, and says nothing any more.

Positions, ids, types, times and digests stay, so that order, counts and duplicates hold; ``data`` go, and with the
verdict ``erased_by`` no fold sees the event again. It happens in the transaction that archives ``scope.erased``, for
what stands before it in its partition; the keys concerned are noted, so that folds that had seen the words make those
keys anew (``projections.engine.folder``). What comes later and belongs to an erased run, or was derived from an event
that is erased, is blanked as it is archived: an answer that was on its way brings nothing back. Nor does
what is erased, sent again when the log has forgotten its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, bindparam, select, update

from events.archive.queries import read_verdicts
from events.archive.schema import EFFECTIVE, IS_RUN_START, erased_keys, erased_runs, erasures, event_ids, event_log
from events.archive.store import Entry
from events.archive.subjects import ERASURE, Named, Selection, Subject
from events.bulk import bulk_insert, bulk_insert_new, bulk_select
from events.database import overwriting
from events.errors import Poison
from events.event import START, Event, Position
from events.keys import task_key
from events.registry import decode_payload
from events.types.system import ScopeErased

ERASED = "erased_by"
"""The verdict of an event that was effective and is erased."""

_Key = tuple[str, str]


class Count(NamedTuple):
    """What an erasure would take: events that say something, the runs and keys they are of, and how many of a type."""

    events: int
    runs: int
    keys: int
    types: Mapping[str, int]


class Erasure(NamedTuple):
    """An erasure as the archive has it. ``partitions``: where it has come to, and at which position each."""

    erasure: str
    subject: Subject
    by: str
    received_ms: int
    events: int
    partitions: Mapping[int, Position]
    finished_ms: int | None


def count(conn: Connection, subject: Subject, partitions: int) -> Count:
    """What erasing a subject would blank now. Changes nothing."""
    selection = Selection(conn, subject)
    found = [one for partition in range(partitions) for one in selection.of(partition) if one.verdict != ERASED]
    types = Counter(one.type for one in found)
    return Count(len(found), len(selection.runs), len({one.key for one in found}), dict(sorted(types.items())))


def erase_archived(conn: Connection, batches: Mapping[int, Sequence[Entry]], received_ms: int) -> dict[int, Position]:
    """Erase what the batches that were just archived in this transaction demand; the last erasure of each partition."""
    last: dict[int, Position] = {}
    selections: dict[Subject, Selection] = {}
    for partition, entries in sorted(batches.items()):
        for position, event in entries:
            if event.type == ERASURE and (payload := _erasure(conn, partition, position, event)) is not None:
                subject = Subject(event.org, payload.level, payload.subject)
                selection = selections.setdefault(subject, Selection(conn, subject))
                with overwriting(conn):
                    _erase(conn, partition, position, selection, payload, event, received_ms)
                last[partition] = position
    if _was_ever_erased(conn):
        for partition, entries in sorted(batches.items()):
            with overwriting(conn):
                _blank_late(conn, partition, entries)
    return last


def _erasure(conn: Connection, partition: int, position: Position, event: Event) -> ScopeErased | None:
    verdict = select(event_log.c.verdict).where(
        event_log.c.partition == partition, event_log.c.epoch == position.epoch, event_log.c.n == position.n
    )
    if conn.execute(verdict).scalar() != EFFECTIVE:
        return None
    try:
        payload = decode_payload(event)
    except Poison:  # of newer code, say: the log goes on, and whoever knows it asks again
        return None
    return payload if isinstance(payload, ScopeErased) else None


def _erase(
    conn: Connection,
    partition: int,
    position: Position,
    selection: Selection,
    payload: ScopeErased,
    event: Event,
    received_ms: int,
) -> None:
    org = selection.subject.org
    found = [one for one in selection.of(partition, position) if one.verdict != ERASED]
    _blank(conn, partition, found, position)
    bulk_insert_new(conn, erased_runs, ("org", "task", "run"), [(org, *run) for run in sorted(selection.runs)])
    keys = sorted({one.key for one in found if one.verdict == EFFECTIVE})
    bulk_insert(
        conn, erased_keys, ("partition", "epoch", "n", "org", "key"), [(partition, *position, org, k) for k in keys]
    )
    row = (partition, *position, payload.erasure or event.id, *selection.subject, payload.by, received_ms, len(found))
    columns = ("partition", "epoch", "n", "erasure", "org", "level", "subject", "by", "received_ms", "events")
    bulk_insert(conn, erasures, columns, [row])


def _blank(conn: Connection, partition: int, found: Sequence[Named], by: Position | None) -> None:
    """Take the words out of events. What repeats or contradicts another one keeps its verdict."""
    table = event_log
    here = (table.c.partition == partition, table.c.epoch == bindparam("of_epoch"), table.c.n == bindparam("of_n"))
    starts = [(partition, one.epoch, one.n) for one in found if one.type == "run.started"]
    read = bulk_select(conn, table, ("epoch", "n", "data"), ("partition", "epoch", "n"), starts)
    stays = {(epoch, n): _what_stays(data) for epoch, n, data in read}
    for effective in (True, False):
        rows = [
            {"of_epoch": one.epoch, "of_n": one.n, "blank": stays.get((one.epoch, one.n), "{}")}
            for one in found
            if (one.verdict == EFFECTIVE) is effective
        ]
        values: dict[str, Any] = {"data": bindparam("blank")}
        if effective:
            epoch, n = by if by is not None else (None, None)
            values |= {"verdict": ERASED, "ref_epoch": epoch, "ref_n": n}
        if rows:
            conn.execute(update(table).where(*here).values(**values), rows)


def _what_stays(data: str) -> str:
    """Of a run's start its attempt: the next one of its task must be known by it."""
    return orjson.dumps({"attempt": orjson.loads(data).get("attempt", 1)}).decode()


def _blank_late(conn: Connection, partition: int, entries: Sequence[Entry]) -> None:
    """Blank what came after its run was erased, was derived from what is erased, or is that, sent again."""
    found = [(position, event) for position, event in entries if event.type != ERASURE]
    verdicts = read_verdicts(conn, partition, [position for position, _ in found])
    firsts = {position: one.first for position, one in verdicts.items() if one.first is not None}
    again = erased_positions(conn, [(partition, first) for first in firsts.values()])
    runs = {(e.org, e.task, e.run) for _, e in found if e.run}
    erased = set(bulk_select(conn, erased_runs, ("org", "task", "run"), ("org", "task", "run"), sorted(runs)))
    causes = {(e.causation, e.org) for _, e in found if e.causation}
    gone = _erased_ids(conn, causes)
    tasks = {(e.org, e.task): _is_erased_whole(conn, e.org, e.task) for _, e in found if e.task and not e.run}
    late = []
    for position, e in found:
        verdict = verdicts[position].verdict
        if verdict == ERASED:
            continue
        of_a_task = not e.run and e.key == task_key(e.task) and tasks[e.org, e.task]
        is_again = (partition, firsts.get(position)) in again
        if (e.org, e.task, e.run) in erased or (e.causation, e.org) in gone or of_a_task or is_again:
            late.append(Named(*position, verdict, e.type, e.key, e.task, e.run, e.causation, e.correlation))
    _blank(conn, partition, late, None)


def _erased_ids(conn: Connection, wanted: Iterable[_Key]) -> set[_Key]:
    """Those of these (id, org) that are ids of events that are erased, or will be: their run is.

    The erasure may not have come to their partition yet.
    """
    columns = ("id", "org", "partition", "epoch", "n")
    places = {
        (partition, epoch, n): (id_, org)
        for id_, org, partition, epoch, n in bulk_select(conn, event_ids, columns, ("id", "org"), sorted(wanted))
    }
    key, run = ("partition", "epoch", "n"), ("org", "task", "run")
    found = list(bulk_select(conn, event_log, (*key, "verdict", *run), key, sorted(places)))
    runs = set(bulk_select(conn, erased_runs, run, run, sorted({row[4:] for row in found})))
    return {places[row[:3]] for row in found if row[3] == ERASED or row[4:] in runs}


def _is_erased_whole(conn: Connection, org: str, task: str) -> bool:
    """Whether a task has begun, and every run that did is erased."""
    table = event_log.c
    query = select(table.verdict).where(table.org == org, table.task == task, IS_RUN_START).distinct()
    verdicts = set(conn.execute(query).scalars())
    return ERASED in verdicts and EFFECTIVE not in verdicts


def read_erasures(conn: Connection, org: str | None = None, erasure: str | None = None) -> list[Erasure]:
    """Erasures (of one org; None: of all, for admins), the newest first."""
    query = select(erasures)
    if org is not None:
        query = query.where(erasures.c.org == org)
    if erasure is not None:
        query = query.where(erasures.c.erasure == erasure)
    rows: dict[tuple[str, str], list[Any]] = {}
    for row in conn.execute(query.order_by(erasures.c.received_ms, erasures.c.partition)):
        rows.setdefault((row.org, row.erasure), []).append(row)
    return [_as_one(of_one) for of_one in reversed(rows.values())]


def _as_one(rows: Sequence[Any]) -> Erasure:
    first = rows[0]
    finished = [row.finished_ms for row in rows]
    return Erasure(
        first.erasure, Subject(first.org, first.level, first.subject), first.by, first.received_ms,
        sum(row.events for row in rows), {row.partition: Position(row.epoch, row.n) for row in rows},
        None if None in finished else max(finished),
    )  # fmt: skip


def read_unfinished(conn: Connection) -> list[Erasure]:
    """The erasures of which something may be left somewhere, the oldest first."""
    query = select(erasures.c.org, erasures.c.erasure).where(erasures.c.finished_ms.is_(None)).distinct()
    found = [one for org, erasure in conn.execute(query).all() for one in read_erasures(conn, org, erasure)]
    return sorted(found, key=lambda one: (one.received_ms, one.erasure))


def finish(conn: Connection, erasure: Erasure, now_ms: int) -> None:
    """Record that nothing is left of what it erased."""
    mine = (erasures.c.org == erasure.subject.org, erasures.c.erasure == erasure.erasure)
    conn.execute(update(erasures).where(*mine, erasures.c.finished_ms.is_(None)).values(finished_ms=now_ms))


def read_erased_keys(conn: Connection, partition: int, position: Position) -> list[_Key]:
    """The (org, key) that lost events to the erasure at a position."""
    table = erased_keys.c
    query = select(table.org, table.key).where(
        table.partition == partition, table.epoch == position.epoch, table.n == position.n
    )
    return [(org, key) for org, key in conn.execute(query.order_by(table.org, table.key))]


def read_last_erasures(conn: Connection) -> dict[int, Position]:
    """The last erasure that was archived in each partition that has one."""
    last: dict[int, Position] = {}
    for partition, epoch, n in conn.execute(select(erasures.c.partition, erasures.c.epoch, erasures.c.n)):
        last[partition] = max(last.get(partition, START), Position(epoch, n))
    return last


def has_erasure_after(conn: Connection, vector: Mapping[int, Position]) -> bool:
    """Whether an erasure was archived that stands behind these positions."""
    return any(position > vector.get(partition, START) for partition, position in read_last_erasures(conn).items())


def erased_among(conn: Connection, runs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of these (org, run) that are erased, in whichever task."""
    key = ("org", "run")
    return set(bulk_select(conn, erased_runs, key, key, sorted(runs)))


def erased_positions(conn: Connection, places: Sequence[tuple[int, Position]]) -> set[tuple[int, Position]]:
    """Those of these (partition, position) that are erased. Costs one small look where nothing ever was."""
    if not places or not _was_ever_erased(conn):
        return set()
    key = ("partition", "epoch", "n")
    found = bulk_select(conn, event_log, (*key, "verdict"), key, [(partition, *place) for partition, place in places])
    return {(partition, Position(epoch, n)) for partition, epoch, n, verdict in found if verdict == ERASED}


def _was_ever_erased(conn: Connection) -> bool:
    return conn.execute(select(erasures.c.n).limit(1)).first() is not None
