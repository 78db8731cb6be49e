"""``/v1/deadletters``: events that no fold could take, and what people do about them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Body, Query, Request, Response

from events.codec import to_cloudevent
from events.event import Position
from projections.engine import dead_letters
from projections.engine.dead_letters import Place
from projections.engine.fold import DeadLetter
from services.api.deps import BackendDep, OrgDep
from services.api.jobs import Job, Jobs
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.projections import known
from services.api.retrying import letter_document
from services.composition import Backend

router = APIRouter(tags=["dead letters"])

PATIENCE_S = 30.0
"""How long a retry may take before it is answered by where to ask how it went."""

_POLL_S = 0.02

Cause = Literal["poison", "newer_version", "killed", "unwritable", "machine", "waiting"]


@router.get("/v1/deadletters")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    projection: Annotated[str | None, Query(description="Of this projection alone")] = None,
    key: Annotated[str | None, Query(description="Of this partition key alone, `task/t1` say")] = None,
    type: Annotated[str | None, Query(description="Of this event type alone")] = None,
    cause: Annotated[Cause | None, Query(description="With this cause alone")] = None,
    waiting: Annotated[bool, Query(description="Also those that only wait for an earlier one of their key")] = True,
) -> dict[str, Any]:
    """Dead letters of the active generations, by projection and position."""
    names = [known(backend, projection)] if projection else sorted(backend.projections)
    first, after = _cursor(page)
    found: list[tuple[str, DeadLetter]] = []
    for name in names:
        if name < first or len(found) > page.limit:
            continue
        work = partial(
            dead_letters.list_letters, org=org, key=key, type=type, cause=cause, waiting=waiting,
            after=after if name == first else None, limit=page.limit + 1 - len(found),
        )  # fmt: skip
        found += [(name, letter) for letter in (await backend.read_models.read(name, work)).value]
    shown = found[: page.limit]
    last = shown[-1] if len(found) > page.limit else None
    place = None if last is None else [last[0], last[1].partition, *last[1].position]
    return page.answer([letter_document(name, letter) for name, letter in shown], place)


@router.get("/v1/deadletters/retries/{job:name}")
async def retried(job: str, request: Request, org: OrgDep) -> dict[str, Any]:
    """How a retry went that took long."""
    found = _jobs(request).get(job)
    if found is None or found.kind != "retry" or found.options[0] != f"--org={org}":
        raise Problem(404, "no_job", f"there is no retry {job!r} in this process")
    return _outcome(found)


@router.get("/v1/deadletters/{id:name}")
async def show(id: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """One dead letter, with its traceback and its event."""
    name, letter = await _find(backend, org, id)
    before = Position(letter.position.epoch, letter.position.n - 1)
    archived = await backend.archive.read(letter.partition, before, 1)
    events = [one.event() for one in archived if one.position == letter.position]
    shown = to_cloudevent(events[0]) if events and events[0].org == org else None
    return {**letter_document(name, letter), "traceback": letter.traceback, "event": shown}


@router.post("/v1/deadletters/retry")
async def retry_all(
    backend: BackendDep,
    org: OrgDep,
    request: Request,
    response: Response,
    projection: Annotated[str, Query(description="The projection")],
    key: Annotated[str | None, Query(description="This partition key alone")] = None,
) -> dict[str, Any]:
    """Fold the dead letters of a projection, or of one key, again, in order, key by key.

    Keys on which processes died are left out unless they are named.
    """
    options = [f"--org={org}", *([f"--key={key}"] if key is not None else [])]
    return await _answer(_jobs(request).start("retry", [known(backend, projection)], *options), response)


@router.post("/v1/deadletters/{id:name}/retry")
async def retry(id: str, backend: BackendDep, org: OrgDep, request: Request, response: Response) -> dict[str, Any]:
    """Fold all dead letters of this one's key again, in order."""
    name, letter = await _find(backend, org, id)
    job = _jobs(request).start("retry", [name], f"--org={org}", f"--key={letter.key}")
    return {"id": id, **await _answer(job, response)}


@router.post("/v1/deadletters/{id:name}/discard")
async def discard(
    id: str,
    backend: BackendDep,
    org: OrgDep,
    reason: Annotated[str, Body(embed=True)] = "",
    by: Annotated[str, Body(embed=True)] = "",
) -> dict[str, Any]:
    """Leave the event out for good. Recorded as an event, so that every rebuild agrees."""
    name, letter = await _find(backend, org, id)
    raw = dead_letters.discarding(letter, name, by=by, reason=reason)
    outcomes = await backend.publisher.publish([raw], org=org, source="deadletters")
    if outcomes[0].status not in ("stored", "duplicate"):
        raise Problem(409, outcomes[0].code or outcomes[0].status, outcomes[0].message)
    return {"id": id, "state": "discarded", "token": outcomes[0].token}


async def _answer(job: Job, response: Response) -> dict[str, Any]:
    """The outcome of a retry, or after PATIENCE_S where to ask for it."""
    for _ in range(round(PATIENCE_S / _POLL_S)):
        if not job.running:
            break
        await asyncio.sleep(_POLL_S)
    if job.running:
        response.status_code = 202
        response.headers["location"] = f"/v1/deadletters/retries/{job.id}"
    return _outcome(job)


def _outcome(job: Job) -> dict[str, Any]:
    """``state``: running, folded, or failed (``left`` are the first dead letters that are left).

    Raises Problem when the job was refused or its process died: what it had not folded is as it was.
    """
    part = job.part()
    told = {"job": job.id, "phase": part.progress.get("phase", "")}
    if part.state == "running":
        return {**told, "state": "running"}
    if part.state == "done":
        return {**told, **part.result}
    refusal = part.progress.get("code", "")
    if refusal:
        raise Problem(404 if refusal == "no_dead_letter" else 409, refusal, part.error)
    where = f" (at {told['phase']})" if told["phase"] else ""
    raise Problem(409, "retry_died", f"{part.error}{where}; its dead letters are as they were")


async def _find(backend: Backend, org: str, id: str) -> tuple[str, DeadLetter]:
    projection, place = _place(id)
    if place is not None and projection in backend.projections:
        found = await backend.read_models.read(projection, partial(dead_letters.find, place=place, org=org))
        if found.value is not None:
            return projection, found.value
    raise Problem(404, "no_dead_letter", f"there is no dead letter {id!r}: see `refold deadletters list`")


def _place(id: str) -> tuple[str, Place | None]:
    """Projection and place that an id (``letter_id``) names; no place when it is none."""
    projection, _, rest = id.rpartition(":")
    projection, _, partition = projection.rpartition(":")
    try:
        numbers = (int(partition), *Position.parse(rest))
    except ValueError:
        return projection, None
    return projection, numbers if all(abs(number) < 1 << 63 for number in numbers) else None


def _cursor(page: Page) -> tuple[str, Place | None]:
    """Projection and place behind which a page begins."""
    if page.cursor is None:
        return "", None
    kinds = [type(part) for part in page.cursor]
    if kinds != [str, int, int, int]:
        raise Problem(422, "bad_cursor", "`cursor` is of another list: start without it")
    name, *place = page.cursor
    return name, cast(Place, tuple(place))


def _jobs(request: Request) -> Jobs:
    return cast(Jobs, request.app.state.jobs)
