"""``/v1/tasks``: where tasks stand, and what a new process needs to go on with one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from events.keys import partition_of, session_key, task_key
from projections.queries import settlements, tasks
from projections.queries.moments import as_position
from services.api.deps import After, BackendDep, OrgDep
from services.api.history import At, FoldingDep, task_at
from services.api.listings import event_at, system_prompt
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
    work = partial(tasks.list_tasks, org=org, status=status, user=user, after=page.name, limit=page.limit + 1)
    found = await read(backend, STATE, work, org=org, after=after)
    shown = found.value[: page.limit]
    more = [shown[-1]["task"]] if len(found.value) > page.limit else None
    return {**page.answer(shown, more), "read": found.note}


@router.get("/v1/tasks/{task:name}")
async def show(
    task: str, backend: BackendDep, folding: FoldingDep, org: OrgDep, after: After = None, at: At = None
) -> dict[str, Any]:
    """Everything known of a task: status, plan, steps, calls in flight, runs, decisions, notes, totals.

    With ``at``, as it stood then. Without ``after`` it waits for all that is durable now only where the task would be
    unknown.
    """
    if at is not None:
        if after:
            raise Problem(422, "bad_parameter", "`at` names a moment that has been, `after` one to wait for: give one")
        return await task_at(backend, folding, org, task, at)
    work = partial(tasks.task_document, org=org, task=task, now=now(), verify=backend.settings.categories_to_verify)
    key = task_key(task)
    found = await read(backend, STATE, work, org=org, key=key, after=after)
    if found.value is None and not after:
        found = await read(backend, STATE, work, org=org, key=key, after=await newest(backend, org, key))
    return {**_known(found, task), "read": found.note}


@router.get("/v1/tasks/{task:name}/resume", response_class=Response)
async def resume(
    task: str,
    backend: BackendDep,
    org: OrgDep,
    after: After = None,
    config: Annotated[
        str | None,
        Query(description="JSON object of the caller's digests, to be told what changed; null where it has none"),
    ] = None,
    knows: Annotated[
        str | None, Query(description="Schema version of checkpoints that the caller knows, to be told of a newer one")
    ] = None,
) -> Response:
    """What a new process needs: finished steps, calls to check before repeating, session state, system prompt.

    Without ``after`` it waits for all of this task that is durable now, since who goes on from an older state repeats
    work; tasks of sub-agents are told as far as they are folded. Asked twice, it answers the same.
    """
    digests = _digests(config)
    after = after or await newest(backend, org, task_key(task))
    verify = backend.settings.categories_to_verify
    work = partial(tasks.resume_document, org=org, task=task, now=now(), config=digests, knows=knows, verify=verify)
    found = await read(backend, STATE, work, org=org, key=task_key(task), after=after)
    document = _known(found, task)
    session, prompt = await asyncio.gather(
        _session(backend, org, task, document, after), _prompt(backend, org, task, document)
    )
    evidence = session["evidence_since"] if session else []
    beside = {"session_state": session, "pinned_evidence": evidence, "system_prompt": prompt, "read": found.note}
    # as the stores have it: what an agent's runtime saved comes back byte for byte
    return Response(orjson.dumps({**document, **beside}), media_type="application/json")


@router.get("/v1/tasks/{task:name}/events/{position}")
async def original(task: str, position: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """The event at a position that a task's document names: the whole of what is only summarised there."""
    key = task_key(task)
    here = as_position(position)
    if here is None:
        raise Problem(422, "bad_parameter", f"{position[:40]!r} is no position: write one like 1-42")
    partition = partition_of(org, key, backend.partitions)
    event = await backend.db.read(lambda conn: event_at(conn, org, partition, here))
    if event is None or event.get("task") != task:
        raise Problem(404, "no_event", f"task {task!r} has no event at {position}")
    return event


async def _prompt(backend: Backend, org: str, task: str, document: Mapping[str, Any]) -> dict[str, Any] | None:
    if not document["config"]["digests"].get("system_prompt"):
        return None
    return await backend.db.read(lambda conn: system_prompt(conn, org, task, document["run"]))


def _known(found: Found, task: str) -> dict[str, Any]:
    if found.value is None:
        raise missing(found, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    document: dict[str, Any] = found.value
    return document


def _digests(config: str | None) -> dict[str, str | None] | None:
    if config is None:
        return None
    try:
        value = orjson.loads(config)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or not all(item is None or isinstance(item, str) for item in value.values()):
        raise Problem(422, "bad_parameter", '`config` is a JSON object of digests, like {"model": "..."}')
    return value


async def _session(
    backend: Backend, org: str, task: str, document: Mapping[str, Any], after: str | None
) -> dict[str, Any] | None:
    session, user = document["session"], document["user"]

    def work(conn: Connection) -> dict[str, Any] | None:
        if session:
            return settlements.session_document(conn, org, session, user)
        return settlements.task_session_document(conn, org, task)

    key = session_key(session) if session else task_key(task)
    found = await read(backend, "settlements", work, org=org, key=key, after=after)
    state: dict[str, Any] | None = found.value
    return state
