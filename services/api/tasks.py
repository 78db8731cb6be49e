"""``/v1/tasks``: where tasks stand, and what a new process needs to go on with one."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from sqlalchemy import Connection

from events.keys import session_key, task_key
from projections.queries import settlements, tasks
from services.api.deps import After, BackendDep, OrgDep
from services.api.listings import system_prompt
from services.api.paging import PageParam
from services.api.problems import Problem
from services.api.reading import Found, missing, newest, now, read
from services.composition import Backend

router = APIRouter(tags=["tasks"])
STATE = "task_state"


@router.get("/v1/tasks")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    status: Annotated[str, Query(description="Of this status alone")] = "",
    user: Annotated[str, Query(description="Of this user alone")] = "",
    after: After = None,
) -> dict[str, Any]:
    """Tasks in the order of their ids."""
    last = str(page.cursor[0]) if page.cursor else ""
    work = partial(tasks.list_tasks, org=org, status=status, user=user, after=last, limit=page.limit + 1)
    found = await read(backend, STATE, work, org=org, after=after)
    shown = found.value[: page.limit]
    more = [shown[-1]["task"]] if len(found.value) > page.limit else None
    return {**page.answer(shown, more), "read": found.note}


@router.get("/v1/tasks/{task:name}")
async def show(task: str, backend: BackendDep, org: OrgDep, after: After = None) -> dict[str, Any]:
    """Everything known of a task: status, plan, steps, calls in flight, runs, decisions, notes, totals.

    Without ``after`` it waits for all that is durable now only where the task would be unknown.
    """
    work = partial(tasks.task_document, org=org, task=task, now=now())
    key = task_key(task)
    found = await read(backend, STATE, work, org=org, key=key, after=after)
    if found.value is None and not after:
        found = await read(backend, STATE, work, org=org, key=key, after=await newest(backend, org, key))
    return {**_known(found, task), "read": found.note}


@router.get("/v1/tasks/{task:name}/resume")
async def resume(
    task: str,
    backend: BackendDep,
    org: OrgDep,
    after: After = None,
    config: Annotated[
        str | None, Query(description="JSON object of the caller's digests, to be told what changed")
    ] = None,
) -> dict[str, Any]:
    """What a new process needs: finished steps, calls to check before repeating, session state, system prompt.

    Without ``after`` it waits for all that is durable now, since who goes on from an older state repeats work.
    """
    after = after or await newest(backend, org, task_key(task))
    work = partial(tasks.resume_document, org=org, task=task, now=now(), config=_digests(config))
    found = await read(backend, STATE, work, org=org, key=task_key(task), after=after)
    document = _known(found, task)
    session = await _session(backend, org, task, document["session"], after)
    prompt = await backend.db.read(lambda conn: system_prompt(conn, org, task, document["run"]))
    return {**document, "session_state": session, "system_prompt": prompt, "read": found.note}


def _known(found: Found, task: str) -> dict[str, Any]:
    if found.value is None:
        raise missing(found, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    document: dict[str, Any] = found.value
    return document


def _digests(config: str | None) -> dict[str, str] | None:
    if config is None:
        return None
    try:
        value = orjson.loads(config)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Problem(422, "bad_parameter", '`config` is a JSON object of digests, like {"model": "..."}')
    return value


async def _session(backend: Backend, org: str, task: str, session: str, after: str | None) -> dict[str, Any] | None:
    def work(conn: Connection) -> dict[str, Any] | None:
        if session:
            return settlements.session_document(conn, org, session)
        return settlements.task_session_document(conn, org, task)

    key = session_key(session) if session else task_key(task)
    found = await read(backend, "settlements", work, org=org, key=key, after=after)
    state: dict[str, Any] | None = found.value
    return state
