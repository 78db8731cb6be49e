"""Lists that come from the log store itself: the events of a run and the index of runs, in pages, in both directions.

Tenants are walls: every list takes the org that owns it. Cursors are places in a total order (log positions), so a page
is the same however many events share a millisecond (C38).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, exists, func, select, tuple_

from events.archive.schema import IS_RUN_START, OF_A_RUN, event_ids, event_log
from events.codec import to_cloudevent
from events.event import Event, Position
from events.times import written
from services.api.paging import Page
from services.api.problems import Problem

_EVENT = Event.__struct_fields__
_PLACE = (event_log.c.partition, event_log.c.epoch, event_log.c.n)
_RUN_COLUMNS = ("task", "run", "agent", "user", "session", "time", "received_ms", "data")
_RECEIVED = (event_log.c.received_ms, *_PLACE)
_STARTS = (
    select(event_log.c.run, event_log.c.data)
    .where(event_log.c.org == bindparam("of_org"), event_log.c.task == bindparam("of_task"))
    .where(event_log.c.verdict == "effective", IS_RUN_START)
    .order_by(*_PLACE)
)


def run_events(conn: Connection, org: str, run: str, page: Page) -> dict[str, Any]:
    """A page of the events of a run as they were received, then by partition and position.

    A run has events in several partitions (of its task, its session, its scope), whose positions do not compare. Raises
    Problem when there is no such run.
    """
    of_run = (event_log.c.org == org, event_log.c.run == run, OF_A_RUN)
    rows = conn.execute(_paged(_events_query().where(*of_run), _RECEIVED, page)).all()
    if not rows and page.cursor is None and not conn.execute(select(exists().where(*of_run))).scalar():
        raise Problem(404, "no_run", f"no event of run {run!r} is archived")
    return _answer(page, rows, 4, _event_document)


def events_of_id(conn: Connection, org: str, id_: str, page: Page) -> dict[str, Any]:
    """A page of the events that bear an id, each under another partition key. Raises Problem when there is none."""
    firsts = select(event_ids.c.partition, event_ids.c.epoch, event_ids.c.n).where(
        event_ids.c.id == id_, event_ids.c.org == org
    )
    rows = conn.execute(_paged(_events_query().where(tuple_(*_PLACE).in_(firsts)), _RECEIVED, page)).all()
    if not rows and page.cursor is None:
        raise Problem(404, "no_event", f"no event {id_!r} is archived")
    return _answer(page, rows, 4, _event_document)


def runs(conn: Connection, org: str, task: str | None, page: Page) -> dict[str, Any]:
    """A page of the runs (of a task) by when their start was archived: ``desc`` is the newest first."""
    query = select(*_RECEIVED, *(event_log.c[name] for name in _RUN_COLUMNS)).where(
        event_log.c.org == org, event_log.c.verdict == "effective", IS_RUN_START
    )
    if task is not None:
        query = query.where(event_log.c.task == task)
    return _answer(page, conn.execute(_paged(query, _RECEIVED, page)).all(), 4, _run_document)


def run_summary(conn: Connection, org: str, run: str) -> dict[str, Any]:
    """One run: how it started, how it ended (its first terminal event), how many events it has. Raises Problem."""
    effective = (event_log.c.org == org, event_log.c.run == run, event_log.c.verdict == "effective", OF_A_RUN)
    counted = conn.execute(select(func.count(), func.min(event_log.c.task)).where(*effective)).one()
    if not counted[0]:
        raise Problem(404, "no_run", f"no event of run {run!r} is archived")
    started = _first(conn, effective, "run.started")
    ended = _first(conn, effective, "run.terminated")
    document = _run_document(started) if started is not None else {"run": run, "task": counted[1]}
    end = None if ended is None else {"time": ended.time, **orjson.loads(ended.data)}
    return {**document, "events": counted[0], "terminated": end}


def system_prompt(conn: Connection, org: str, task: str, run: str) -> dict[str, Any] | None:
    """The system prompt that a run was started with: its digest, and the text where any run of the task brought it."""
    starts = conn.execute(_STARTS, {"of_org": org, "of_task": task})
    prompts = [(row.run, orjson.loads(row.data).get("system_prompt")) for row in starts]
    mine = next((prompt for of_run, prompt in prompts if of_run == run and prompt), None)
    if mine is None:
        return None
    texts = (p["content"] for _, p in prompts if p and p["digest"] == mine["digest"] and p.get("content") is not None)
    return {"digest": mine["digest"], "content": next(texts, None)}


def event_at(conn: Connection, org: str, partition: int, position: Position) -> dict[str, Any] | None:
    """The event at a position, when it is this org's."""
    here = (event_log.c.partition == partition, event_log.c.epoch == position.epoch, event_log.c.n == position.n)
    row = conn.execute(_events_query().where(*here, event_log.c.org == org)).one_or_none()
    return None if row is None else _event_document(row)


def _first(conn: Connection, conditions: tuple[ColumnElement[bool] | Any, ...], type: str) -> Row[Any] | None:
    columns = (event_log.c[name] for name in _RUN_COLUMNS)
    return conn.execute(
        select(*columns).where(*conditions, event_log.c.type == type).order_by(*_PLACE).limit(1)
    ).one_or_none()


def _events_query() -> Select[Any]:
    columns = ("verdict", "ref_epoch", "ref_n", *_EVENT)
    return select(*_RECEIVED, *(event_log.c[name] for name in columns))


def _paged(query: Select[Any], place: tuple[Any, ...], page: Page) -> Select[Any]:
    """The query from the page's cursor on, with one row more than the page holds."""
    down = page.order == "desc"
    if page.cursor is not None:
        if len(page.cursor) != len(place) or not all(isinstance(part, int) for part in page.cursor):
            raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
        here, there = tuple_(*place), tuple_(*page.cursor)
        query = query.where(here < there if down else here > there)
    return query.order_by(*(column.desc() if down else column for column in place)).limit(page.limit + 1)


def _answer(page: Page, rows: Any, place: int, document: Any) -> dict[str, Any]:
    shown = rows[: page.limit]
    last = list(shown[-1][:place]) if len(rows) > page.limit else None
    return page.answer([document(row) for row in shown], last)


def _event_document(row: Row[Any]) -> dict[str, Any]:
    """The CloudEvent with where it stands in the log; ``first`` is what a repeated or conflicting event repeats."""
    fields = row._mapping
    event = Event(**{name: fields[name] for name in _EVENT if name != "sanitized"}, sanitized=bool(row.sanitized))
    document = {
        **to_cloudevent(event),
        "partition": row.partition,
        "position": str(Position(row.epoch, row.n)),
        "verdict": row.verdict,
        "received": rfc3339(row.received_ms),
    }
    if row.ref_epoch is not None:
        document["first"] = str(Position(row.ref_epoch, row.ref_n))
    return document


def _run_document(row: Row[Any]) -> dict[str, Any]:
    data = orjson.loads(row.data)
    return {
        "run": row.run,
        "task": row.task,
        "attempt": data.get("attempt", 1),
        "goal": data.get("goal", ""),
        "model": data.get("model", ""),
        "agent": row.agent,
        "user": row.user,
        "session": row.session,
        "started": row.time,
        "received": rfc3339(row.received_ms),
    }


def rfc3339(unix_ms: int) -> str:
    """Unix milliseconds as RFC 3339 in UTC."""
    return written(datetime.fromtimestamp(unix_ms / 1000, UTC))
