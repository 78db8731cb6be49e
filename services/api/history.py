"""``/v1/tasks/{id}?at=``, ``/timeline``, ``/checkpoints``: how a task came to stand where it stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Connection
from starlette.responses import Response

from events.archive import queries
from events.archive.reader import Archived
from events.archive.store import log_id
from events.errors import Refused
from events.event import START, Position
from events.keys import partition_of, task_key
from events.tokens import write_token
from projections.engine.past import fold_past, in_memory
from projections.engine.store import read_letters
from projections.queries import checkpoints, moments, tasks, timeline
from projections.queries.task_parts import Parts
from services.api.deps import BackendDep, OrgDep
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.reading import Found, missing, newest, now, read
from services.composition import Backend

T = TypeVar("T")

router = APIRouter(tags=["tasks"])
STATE = "task_state"

MAX_EVENTS = 200_000
"""Longest history that one request folds: about 40 microseconds and a kilobyte an event."""


class Folding:
    """Folds histories for requests, one at a time: what costs the processor's time is not to be had many times at once.

    One instance an application; it belongs to the application's event loop.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    async def run(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """``work(given_up)`` in a thread; it looks now and then whether its caller has given up, and ends then."""
        given_up = threading.Event()
        async with self._free:
            try:
                return await asyncio.to_thread(work, given_up.is_set)
            finally:
                given_up.set()


def _folding(request: Request) -> Folding:
    folding: Folding = request.app.state.folding
    return folding


FoldingDep = Annotated[Folding, Depends(_folding)]
At = Annotated[
    str | None,
    Query(
        description="The state right after this moment: a log position (`1-42`), a publish's token, or an event's id. "
        "What depends on the time, such as whether a note is stale, is told for now"
    ),
]


@router.get("/v1/tasks/{task:name}/timeline")
async def list_events(task: str, backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """The events of a task in their order: position, time, type, run, what it told, and what became of it.

    Any position can be given to `at` of `/v1/tasks/{id}`.
    """
    key = task_key(task)
    projection = backend.projections[STATE]
    listed = await backend.db.read(partial(_page, org=org, key=key, page=page))
    if not listed and page.cursor is None:
        raise Problem(404, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    discarded = await backend.db.read(partial(timeline.discarded_ids, projection=projection, org=org, key=key))
    positions = [archived.position for archived in listed]
    found = await read(
        backend, STATE, partial(timeline.effects, org=org, key=key, positions=positions), org=org, key=key
    )
    shown = [
        timeline.entry(archived, projection, discarded, found.value.get(archived.position))
        for archived in listed[: page.limit]
    ]
    more = list(listed[page.limit - 1].position) if len(listed) > page.limit else None
    return {**page.answer(shown, more), "read": found.note}


@router.get("/v1/tasks/{task:name}/checkpoints")
async def list_checkpoints(task: str, backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """The checkpoints of the agent's own runtime that are kept, the newest first, without their data."""
    found = await _read_newest(backend, org, task, partial(checkpoints.list_checkpoints, org=org, task=task))
    if found.value is None:
        raise missing(found, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    return {**page.slice(found.value), "read": found.note}


@router.get("/v1/tasks/{task:name}/checkpoints/{checkpoint:name}", response_class=Response)
async def show_checkpoint(task: str, checkpoint: str, backend: BackendDep, org: OrgDep) -> Response:
    """One checkpoint with its data and schema version: the latest of this name, or the one at this log position."""
    work = partial(checkpoints.find_checkpoint, org=org, task=task, name=checkpoint)
    found = await _read_newest(backend, org, task, work)
    if found.value is None:
        detail = (
            f"task {task!r} keeps no checkpoint {checkpoint!r:.150}: `refold checkpoints TASK` lists those it keeps"
        )
        raise missing(found, "no_such_checkpoint", detail)
    # as the stores have it: what an agent's runtime saved comes back byte for byte
    return Response(orjson.dumps({**found.value, "read": found.note}), media_type="application/json")


async def task_at(backend: Backend, folding: Folding, org: str, task: str, at: str) -> dict[str, Any]:
    """The document of a task as it stood at a moment, folded anew from its own events.

    Tasks of sub-agents lie in partitions whose positions do not compare with this one's: they are told as they are now.
    Raises Problem: 404 where nothing was known of the task then; Refused where the moment is none of it.
    """
    key = task_key(task)
    partition = partition_of(org, key, backend.partitions)
    position = await backend.db.read(partial(find_foldable, org=org, key=key, partition=partition, at=at))
    letters = await _letters(backend, org, key, partition, position)

    def work(given_up: Callable[[], bool]) -> tuple[dict[str, Any] | None, bool]:
        past = fold_past(backend.projections[STATE], backend.db, (org, key), position, letters.value, given_up=given_up)
        with in_memory(past) as conn:
            verify = backend.settings.categories_to_verify
            return tasks.task_document(conn, org, task, now=now(), verify=verify), bool(past.letters)

    document, incomplete = await folding.run(work)
    if document is None:
        raise await _not_yet(backend, org, task, position)
    runs = document["runs"]
    children = await read(backend, STATE, lambda conn: Parts(conn, org, key).children(runs), org=org, key=key)
    note = {**letters.note, "stale": False, "incomplete": incomplete}
    return {**document, "children": children.value, "at": str(position), "read": note}


def find_foldable(conn: Connection, org: str, key: str, partition: int, at: str) -> Position:
    """The position that ``at`` names, as ``find_moment``; Refused, too, where too many events lead up to it."""
    position = moments.find_moment(conn, org, key, partition, at, log_id(conn))
    if queries.count_key(conn, org, key, position, MAX_EVENTS + 1) > MAX_EVENTS:
        raise Refused(
            f"this task has more than {MAX_EVENTS:,} events up to {position}, too many to fold for one answer: its "
            "timeline lists them",
            code="too_long",
            field="at",
        )
    return position


async def _letters(backend: Backend, org: str, key: str, partition: int, position: Position) -> Found:
    """The live dead letters of a key, once the live fold has passed the position: it has met what may be met there."""
    token = write_token([(partition, position)])
    found = await read(backend, STATE, lambda conn: read_letters(conn, (org, key)), org=org, key=key, after=token)
    if not found.note["reached"]:
        detail = f"{found.note['generation']} has not folded {position} yet: ask again"
        raise Problem(503, "behind", detail, read=found.note)
    return found


async def _not_yet(backend: Backend, org: str, task: str, position: Position) -> Problem:
    first = await backend.db.read(partial(queries.read_key, org=org, key=task_key(task), after=START, limit=1))
    if not first:
        return Problem(404, "no_checkpoint", f"no_checkpoint: nothing saved for task {task!r}")
    return Problem(
        404, "not_yet", f"nothing was known of task {task!r} at {position}: it begins at {first[0].position}"
    )


async def _read_newest(backend: Backend, org: str, task: str, work: Callable[[Connection], Any]) -> Found:
    """As a resume: once all that is durable now is folded, since who goes on from an older checkpoint repeats work."""
    key = task_key(task)
    return await read(backend, STATE, work, org=org, key=key, after=await newest(backend, org, key))


def _page(conn: Connection, org: str, key: str, page: Page) -> list[Archived]:
    """The events of a page, and one more where there is one."""
    place = page.cursor
    if place is not None and (len(place) != 2 or not all(isinstance(part, int) for part in place)):
        raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
    here = None if place is None else Position(*place)
    if page.order == "desc":
        return queries.read_key_back(conn, org, key, here, page.limit + 1)
    return queries.read_key(conn, org, key, here or START, page.limit + 1)
