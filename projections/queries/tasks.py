"""Reads of task state: the task as it stands, and what a new process needs to go on with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, or_, select

from events.keys import task_key
from projections.bounds import short
from projections.queries.checkpoints import latest_checkpoint
from projections.queries.rows import Document, Query
from projections.queries.schemas import compare_schemas
from projections.queries.task_parts import (
    MAX_HISTORY,
    Parts,
    Reading,
    call_of,
    cursor_of,
    head_of,
    planned,
)
from projections.task import tables as t
from projections.task.notes import VERIFY_AGAIN
from projections.task.status import DONE

CHECK_FIRST = "interrupted - check before repeating"
"""How a resume document marks a call whose outcome nobody recorded."""

Config = Mapping[str, str | None]
"""Digests by what they are of: model (its name), system_prompt, tools, plan. None: there is none."""

_CALLS = t.CALLS.c
_IN_FLIGHT = Query(t.CALLS, _CALLS.status == "in_flight", order=(_CALLS.epoch, _CALLS.n))
_ANSWERED = Query(
    t.CALLS, _CALLS.status.in_(("returned", "failed")),
    order=(_CALLS.result_epoch.desc(), _CALLS.result_n.desc()), limit=MAX_HISTORY,
)  # fmt: skip
_EFFECTS = Query(
    t.CALLS, _CALLS.status == "returned", _CALLS.side_effect.is_(True), _CALLS.idempotency_key != "",
    _CALLS.step.in_(bindparam("steps", expanding=True)), order=(_CALLS.result_epoch, _CALLS.result_n),
)  # fmt: skip
_ANSWERS_ELSEWHERE = Query(
    t.CALLS,
    _CALLS.status == "returned",
    or_(
        _CALLS.idempotency_key.in_(bindparam("keys", expanding=True)),
        and_(_CALLS.called.is_(False), _CALLS.call_id.in_(bindparam("ids", expanding=True))),
    ),
)


def task_document(
    conn: Connection, org: str, task: str, *, now: datetime, verify: Collection[str] = VERIFY_AGAIN
) -> Document | None:
    """Everything known of a task; None when nothing is. ``verify``: categories of notes to be verified again."""
    parts = Parts(conn, org, task_key(task))
    head = parts.head
    if head is None:
        return None
    runs, steps = parts.runs(), parts.steps()
    calls = _IN_FLIGHT.all(conn, org, parts.key) if head["calls_in_flight"] != 0 else []
    return {
        **head_of(task, head),
        "plan": planned(steps),
        "unplanned_steps": [step for step in steps if step["place"] is None],
        "cursor": cursor_of(steps),
        "calls_in_flight": [call_of(call, "interrupted" if _left(call, runs) else "in_flight") for call in calls],
        "runs": runs,
        "children": parts.children(runs),
        "workbench": parts.workbench(),
        **parts.world(Reading(now, verify)),
        "late": parts.late(),
    }


def resume_document(
    conn: Connection,
    org: str,
    task: str,
    *,
    now: datetime,
    config: Config | None = None,
    knows: str | None = None,
    verify: Collection[str] = VERIFY_AGAIN,
) -> Document | None:
    """What a new process needs to go on with a task; None when nothing is known of it.

    Finished steps are never to be repeated; calls without a recorded outcome are to be checked first, by idempotency
    key; ``effects_done`` are the side effects within steps that are not finished, so that who repeats the step does not
    repeat them. ``config`` are the caller's digests: what differs from those that hold is reported, for the names it
    gives; ``knows`` is the schema version of checkpoints that the caller understands. Asked twice, the answer is the
    same until something happens to the task, or a note in it outlives its time. The session's state and evidence come
    from the settlements and are not part of this document.
    """
    parts = Parts(conn, org, task_key(task))
    head = parts.head
    if head is None:
        return None
    steps, runs = parts.steps(), parts.runs()
    configured = _config(runs, head["plan_digest"], config)
    world = parts.world(Reading(now, verify))
    holds = {**configured["digests"], **(config or {})}
    return {
        **head_of(task, head),
        "next_attempt": head["attempt"] + 1,
        "plan": planned(steps),
        "cursor": cursor_of(steps),
        "finished_steps": [step for step in steps if step["status"] in DONE],
        "in_flight": [call_of(call, CHECK_FIRST) for call in _unanswered(parts, conn, org, head)],
        **_answered(conn, org, parts.key, steps if head["calls"] != head["calls_in_flight"] else None),
        "children": parts.children(runs),
        "workbench": parts.workbench(),
        **world,
        "approvals": [_asked_under(approval, holds) for approval in world["approvals"]],
        "checkpoint": _checkpoint(conn, org, parts.key, knows) if head["checkpoints"] != 0 else None,
        "config": configured,
    }


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
    return [head_of(row["key"].removeprefix("task/"), dict(row)) for row in rows]


def _left(call: Document, runs: list[Document]) -> bool:
    """Whether the run of a call will not see its result any more."""
    run = next((run for run in runs if short(run["run"]) == call["run"]), None)
    newest = runs[-1] if runs else None
    return run is not None and (run["over"] or (newest is not None and newest["run"] != run["run"]))


def _unanswered(parts: Parts, conn: Connection, org: str, head: Document) -> list[Document]:
    """Calls without an outcome, but for those that another run answered.

    Another run answers a call by repeating it under the same idempotency key, or by reporting the result under the same
    call id.
    """
    waiting = _IN_FLIGHT.all(conn, org, parts.key) if head["calls_in_flight"] != 0 else []
    if not waiting or head["calls"] == head["calls_in_flight"]:
        return waiting
    keys = {call["idempotency_key"] for call in waiting} - {""}
    ids = {short(call["call_id"]) for call in waiting}
    answers = _ANSWERS_ELSEWHERE.all(conn, org, parts.key, keys=list(keys), ids=list(ids))
    done_keys = {answer["idempotency_key"] for answer in answers} - {""}
    done_ids = {(answer["run"], answer["call_id"]) for answer in answers if not answer["called"]}
    return [
        call
        for call in waiting
        if call["idempotency_key"] not in done_keys
        and not any(call_id == call["call_id"] and run != call["run"] for run, call_id in done_ids)
    ]


def _answered(conn: Connection, org: str, key: str, steps: list[Document] | None) -> Document:
    """The latest results, and all effects done in steps that are not finished; oldest first, with the way back to the
    original event. ``steps`` is None when no call has a result.
    """
    if steps is None:
        return {"results": [], "effects_done": []}
    unfinished = ["", *(step["step"] for step in steps if step["status"] not in DONE)]
    rows = {
        "results": _ANSWERED.all(conn, org, key)[::-1],
        "effects_done": _EFFECTS.all(conn, org, key, steps=unfinished),
    }
    return {
        name: [call_of(row, row["status"]) | {"position": f"{row['result_epoch']}-{row['result_n']}"} for row in found]
        for name, found in rows.items()
    }


def _checkpoint(conn: Connection, org: str, key: str, knows: str | None) -> Document | None:
    """The latest checkpoint; for a caller that says which schema it knows, how the data's version compares with it."""
    saved = latest_checkpoint(conn, org, key)
    if saved is None or knows is None:
        return saved
    return {**saved, "schema": compare_schemas(saved.get("data_version", ""), knows)}


def _asked_under(approval: Document, holds: Config) -> Document:
    """A pending approval with what it was asked under that holds no more: a yes to it may not be a yes to that."""
    versions = approval.get("versions")
    if not approval["pending"] or not versions:
        return approval
    return {**approval, "changed": _differences(versions, holds, versions)}


def _config(runs: list[Document], plan: str | None, mine: Config | None) -> Document:
    """What the last run was configured with, what changed from the run before, and what differs from ``mine``."""
    known = [run for run in runs if run.get("attempt")]
    last = known[-1]["digests"] if known else {}
    before = known[-2]["digests"] if len(known) > 1 else last
    holds = {**last, "plan": plan} if plan else last
    return {
        "digests": holds,
        "changed_in_last_run": _differences(before, last, before | last),
        "changed_since": [] if mine is None else _differences(holds, mine, mine),
    }


def _differences(before: Config, after: Config, names: Collection[str]) -> list[Document]:
    return [
        {"what": name, "before": before.get(name), "after": after.get(name)}
        for name in sorted(names)
        if (before.get(name) or None) != (after.get(name) or None)
    ]
