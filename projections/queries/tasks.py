"""Reads of task state: the task as it stands, and what a new process needs to go on with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from events.keys import task_key
from projections.bounds import short
from projections.queries.checkpoints import latest_checkpoint
from projections.queries.rows import Document, age_s, duration_s, many, of_run, one, pick, position
from projections.task import tables as t
from projections.task.status import DONE

CHECK_FIRST = "interrupted - check before repeating"
"""How a resume document marks a call whose outcome nobody recorded."""

MAX_HISTORY = 100
"""Latest decisions, results, conflicts and late events shown; the rows hold all of them."""

_TOTALS = (
    "events", "runs", "steps", "steps_done", "steps_open", "calls", "calls_in_flight", "calls_failed", "decisions",
    "artifacts", "notes", "note_conflicts", "checkpoints", "feedback", "tokens_in", "tokens_out", "late",
)  # fmt: skip


def task_document(conn: Connection, org: str, task: str, *, now: datetime) -> Document | None:
    """Everything known of a task; None when nothing is."""
    key = task_key(task)
    head = one(conn, t.TASKS, org, key)
    if head is None:
        return None
    runs = _runs(conn, org, key)
    steps = _steps(conn, org, key)
    calls = many(conn, t.CALLS, org, key, t.CALLS.c.status == "in_flight", order=(t.CALLS.c.epoch, t.CALLS.c.n))
    return {
        **_head(task, head),
        "plan": [step for step in steps if step["place"] is not None],
        "unplanned_steps": [step for step in steps if step["place"] is None],
        "cursor": _cursor(steps),
        "calls_in_flight": [_call(call, "interrupted" if _left(call, runs) else "in_flight") for call in calls],
        "runs": runs,
        **_world(conn, org, key, now),
        "late": _late(conn, org, key),
    }


def resume_document(
    conn: Connection, org: str, task: str, *, now: datetime, config: Mapping[str, str] | None = None
) -> Document | None:
    """What a new process needs to go on with a task; None when nothing is known of it.

    Finished steps are never to be repeated; calls without a recorded outcome are to be checked first, by idempotency
    key. ``config`` are the caller's digests (model, system_prompt, tools, plan): what differs from the last run's is
    reported. The session's state and evidence come from the settlements and are not part of this document.
    """
    key = task_key(task)
    head = one(conn, t.TASKS, org, key)
    if head is None:
        return None
    steps = _steps(conn, org, key)
    saved = latest_checkpoint(conn, org, key)
    return {
        **_head(task, head),
        "next_attempt": head["attempt"] + 1,
        "plan": [step for step in steps if step["place"] is not None],
        "cursor": _cursor(steps),
        "finished_steps": [step for step in steps if step["status"] in DONE],
        "in_flight": [_call(call, CHECK_FIRST) for call in _unanswered(conn, org, key)],
        "results": _results(conn, org, key),
        **_world(conn, org, key, now),
        "checkpoint": saved,
        "config": _config(_runs(conn, org, key), config),
    }


def run_document(conn: Connection, org: str, run: str) -> list[Document]:
    """A run, once for each task that has one of this id."""
    return [_run(row) | {"task": row["key"].removeprefix("task/")} for row in of_run(conn, t.RUNS, org, short(run))]


def list_tasks(
    conn: Connection, org: str, *, status: str = "", user: str = "", after: str = "", limit: int = 50
) -> list[Document]:
    """Tasks of an org in order of their ids, from the one after ``after``."""
    query = select(t.TASKS).where(t.TASKS.c.org == org)
    for column, value in ((t.TASKS.c.status, status), (t.TASKS.c.user, user)):
        if value:
            query = query.where(column == value)
    if after:
        query = query.where(t.TASKS.c.key > task_key(after))
    rows = conn.execute(query.order_by(t.TASKS.c.key).limit(limit)).mappings()
    return [_head(row["key"].removeprefix("task/"), dict(row)) for row in rows]


def count_by_status(conn: Connection, org: str) -> dict[str, int]:
    """How many tasks of an org have each status."""
    query = select(t.TASKS.c.status, func.count()).where(t.TASKS.c.org == org).group_by(t.TASKS.c.status)
    return {row[0]: row[1] for row in conn.execute(query.order_by(t.TASKS.c.status))}


def _head(task: str, head: Mapping[str, Any]) -> Document:
    names = ("status", "goal", "run", "attempt", "reason", "detail", "agent", "user", "session", "current_step")
    return {
        "task": task,
        **{name: head[name] for name in names},
        "totals": {**{name: head[name] for name in _TOTALS}, "cost": head["cost"] or {}},
        "first_time": head["first_time"],
        "last_time": head["last_time"],
        "position": position(dict(head)),
    }


def _steps(conn: Connection, org: str, key: str) -> list[Document]:
    """Planned steps in their order, then the others as they came."""
    c = t.STEPS.c
    rows = many(conn, t.STEPS, org, key, order=(c.place.is_(None), c.place, c.epoch, c.n))
    return [_step(row) for row in rows]


def _step(row: Document) -> Document:
    shown = ("title", "summary", "result", "error", "started", "ended", "run")
    return {
        "step": row["step"],
        "status": row["status"],
        "place": row["place"],
        "attempts": row["attempts"],
        **pick(row, *shown),
        "duration_s": duration_s(row["started"], row["ended"]),
        **({"late": True} if row["late"] else {}),
    }


def _cursor(steps: Iterable[Document]) -> str | None:
    """The first planned step that is not done."""
    return next((step["step"] for step in steps if step["place"] is not None and step["status"] not in DONE), None)


def _runs(conn: Connection, org: str, key: str) -> list[Document]:
    c = t.RUNS.c
    return [_run(row) for row in many(conn, t.RUNS, org, key, order=(c.attempt, c.epoch, c.n))]


def _run(row: Document) -> Document:
    shown = ("attempt", "parent_run", "goal", "mode", "model", "agent", "user", "session", "started", "ended", "reason")
    return {
        "run": row["run"],
        **pick(row, *shown, "outcome", "detail", "budget", "last_time"),
        "over": row["over"],
        "interrupted": row["interrupted"],
        "provisional": row["provisional"],
        "settles": row["settles"],
        "digests": row["digests"] or {},
        "events": row["events"],
        "late": row["late"],
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "duration_s": duration_s(row["started"], row["ended"]),
    }


def _left(call: Document, runs: list[Document]) -> bool:
    """Whether the run of a call will not see its result any more."""
    run = next((run for run in runs if short(run["run"]) == call["run"]), None)
    newest = runs[-1] if runs else None
    return run is not None and (run["over"] or (newest is not None and newest["run"] != run["run"]))


def _call(row: Document, status: str) -> Document:
    shown = ("arguments", "step", "idempotency_key", "called_at", "returned_at", "result", "error", "expected_s")
    return {
        "call_id": row["call_id"],
        "run": row["run_id"],
        "name": row["name"],
        "status": status,
        "side_effect": row["side_effect"],
        **pick(row, *shown),
        **({"late": True} if row["late"] else {}),
    }


def _unanswered(conn: Connection, org: str, key: str) -> list[Document]:
    """Calls without an outcome, but for those that another run answered.

    Another run answers a call by repeating it under the same idempotency key, or by reporting the result under the same
    call id.
    """
    c = t.CALLS.c
    waiting = many(conn, t.CALLS, org, key, c.status == "in_flight", order=(c.epoch, c.n))
    keys = {call["idempotency_key"] for call in waiting} - {""}
    ids = {short(call["call_id"]) for call in waiting}
    if not waiting:
        return []
    elsewhere = or_(c.idempotency_key.in_(keys), and_(c.called.is_(False), c.call_id.in_(ids)))
    answers = many(conn, t.CALLS, org, key, c.status == "returned", elsewhere)
    done_keys = {answer["idempotency_key"] for answer in answers} - {""}
    done_ids = {(answer["run"], answer["call_id"]) for answer in answers if not answer["called"]}
    return [
        call
        for call in waiting
        if call["idempotency_key"] not in done_keys
        and not any(call_id == call["call_id"] and run != call["run"] for run, call_id in done_ids)
    ]


def _results(conn: Connection, org: str, key: str) -> list[Document]:
    """The latest results, oldest first, with the way back to the original event."""
    c = t.CALLS.c
    rows = many(
        conn,
        t.CALLS,
        org,
        key,
        c.status.in_(("returned", "failed")),
        order=(c.result_epoch.desc(), c.result_n.desc()),
        limit=MAX_HISTORY,
    )
    return [_call(row, row["status"]) | {"position": f"{row['result_epoch']}-{row['result_n']}"} for row in rows[::-1]]


def _world(conn: Connection, org: str, key: str, now: datetime) -> Document:
    blockers = many(conn, t.BLOCKERS, org, key, order=(t.BLOCKERS.c.raised,))
    approvals = many(conn, t.APPROVALS, org, key, order=(t.APPROVALS.c.requested,))
    artifacts = many(conn, t.ARTIFACTS, org, key)
    latest = (t.DECISIONS.c.epoch.desc(), t.DECISIONS.c.n.desc())
    decisions = many(conn, t.DECISIONS, org, key, order=latest, limit=MAX_HISTORY)[::-1]
    notes = many(conn, t.NOTES, org, key)
    conflicts = (t.NOTE_CONFLICTS.c.epoch.desc(), t.NOTE_CONFLICTS.c.n.desc())
    return {
        "blockers": [pick(row, "blocker", "description", "open", "raised", "cleared", "detail") for row in blockers],
        "approvals": [_approval(row) for row in approvals],
        "artifacts": [
            pick(row, "name", "uri", "kind", "digest", "size_bytes", "step", "version", "time") for row in artifacts
        ],
        "decisions": [
            pick(row, "question", "chosen", "alternatives", "rationale", "based_on", "time", "event_id")
            | {"position": position(row)}
            for row in decisions
        ],
        "notes": [_note(row, now) for row in notes],
        "note_conflicts": [
            {name: row[name] for name in ("note", "expected_version", "found_version", "content", "run", "time")}
            for row in many(conn, t.NOTE_CONFLICTS, org, key, order=conflicts, limit=MAX_HISTORY)[::-1]
        ],
    }


def _approval(row: Document) -> Document:
    shown = ("approval", "action", "arguments", "versions", "approved", "by", "detail", "requested", "resolved")
    return {**pick(row, *shown), "pending": row["open"]}


def _note(row: Document, now: datetime) -> Document:
    """A note with what a reader must know before trusting it: how old it is, and whether it has outlived its ttl."""
    age = age_s(row["written_at"], now)
    return {
        **pick(row, "note", "version", "category", "ttl_s", "written_at", "source", "run"),
        "content": row["content"],
        "age_s": age,
        "stale": row["ttl_s"] is not None and age > row["ttl_s"],
        "conflicts": row["conflicts"],
    }


def _late(conn: Connection, org: str, key: str) -> list[Document]:
    c = t.LATE_EVENTS.c
    rows = many(conn, t.LATE_EVENTS, org, key, order=(c.epoch.desc(), c.n.desc()), limit=MAX_HISTORY)[::-1]
    return [pick(row, "event_id", "type", "run", "reason", "time") | {"position": position(row)} for row in rows]


def _config(runs: list[Document], mine: Mapping[str, str] | None) -> Document:
    """What the last run was configured with, what changed from the run before, and what differs from ``mine``."""
    known = [run for run in runs if run.get("attempt")]
    last = known[-1]["digests"] if known else {}
    before = known[-2]["digests"] if len(known) > 1 else last
    return {
        "digests": last,
        "changed_in_last_run": _differences(before, last),
        "changed_since": [] if mine is None else _differences(last, mine),
    }


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[Document]:
    names = sorted(before.keys() | after.keys())
    return [
        {"what": name, "before": before.get(name), "after": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    ]
