"""``/v1/projections``, ``/v1/verify``, ``/v1/generations``: how far the read models are, and refolding them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from projections import generations
from projections.generations import Generation
from projections.status import ProjectionStatus, find_building, why_abandoned, why_stale
from services.api.deps import BackendDep
from services.api.jobs import Job, Jobs
from services.api.lag import lag_document, partition_document
from services.api.listings import rfc3339
from services.api.paging import PageParam
from services.api.problems import Problem
from services.composition import Backend

router = APIRouter(tags=["projections"])

_START_S = 10.0
"""How long a job process may take to begin, or to notice that a lease has ended."""
_UNCHECKED = "a rebuild without the check was running already and was joined: rebuild once more to have it checked"


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


def known(backend: Backend, name: str) -> str:
    """The name of a projection that is registered. Raises Problem, listing those that are, for another one."""
    if name not in backend.projections:
        names = ", ".join(sorted(backend.projections))
        raise Problem(404, "no_projection", f"there is no projection {name!r}; there are {names}")
    return name


@router.get("/v1/projections")
async def list_(
    backend: BackendDep,
    request: Request,
    after: Annotated[str | None, Query(description="Position token; `reached` tells who has passed it")] = None,
    detail: Annotated[bool, Query(description="With each partition: who folds it, and how far it is")] = False,
) -> dict[str, Any]:
    """Every read model: its generation, how far it is behind, how fast it gets on, what it waits for."""
    statuses = await backend.read_models.status()
    items = [_status(status, begun=_begun(backend, _jobs(request), status.name)) for status in statuses]
    if detail:
        for item, status in zip(items, statuses, strict=True):
            item["partitions"] = [partition_document(each) for each in status.partitions]
    if after:
        for item in items:
            item["reached"] = item["state"] != "missing" and await _reached(backend, item["name"], after)
    return {"items": items, "next_cursor": None}


async def _reached(backend: Backend, name: str, after: str) -> bool:
    return (await backend.read_models.read(name, lambda _: None, after, 0)).reached


def _begun(backend: Backend, jobs: Jobs, name: str) -> bool:
    """Whether a process of ours that rebuilds it, or is about to, has told something lately."""
    job = jobs.running("rebuild", name)
    return job is not None and job.silent_s < backend.settings.lease_s + _START_S


def _status(status: ProjectionStatus, *, begun: bool) -> dict[str, Any]:
    """``begun``: a process that will rebuild it has started, though it is not at its generation yet."""
    state, hint = status.state, status.reason
    if begun and state in ("stale", "abandoned"):
        hint = why_stale(status.name, rebuilding=True) if state == "stale" else "it is being rebuilt"
        state = "rebuilding"
    return {
        "name": status.name,
        "generation": status.generation or None,
        **lag_document(status),
        "state": state,
        "dead_letters": status.dead_letters,
        "parked_keys": status.parked_keys,
        "hint": hint,
        "rebuild": status.progress,
    }


@router.post("/v1/projections/{name:name}/rebuild", status_code=202)
async def rebuild(
    name: str,
    backend: BackendDep,
    request: Request,
    response: Response,
    check: Annotated[bool, Query(description="Compare with a second, independent refold before the swap")] = False,
) -> dict[str, Any]:
    """Refold a projection beside the one that is read, then swap. A running rebuild is joined, not doubled.

    ``note`` says so when the one that was joined lacks the check that was asked for.
    """
    jobs, options = _jobs(request), ["--check"] if check else []
    joined = jobs.running("rebuild", known(backend, name))
    if joined is not None and await _abandoned(backend, jobs, name) is not None:
        joined = None
    job = joined or jobs.start("rebuild", [name], *options)
    response.headers["location"] = str(request.url.path)
    document = _rebuild_document(name, job)
    return document | {"note": _UNCHECKED} if check and "--check" not in job.options else document


@router.get("/v1/projections/{name:name}/rebuild")
async def rebuild_progress(name: str, backend: BackendDep, request: Request) -> dict[str, Any]:
    """How far the rebuild of a projection is, whichever process does it; else how the last one from here ended.

    ``abandoned``: its process died or stands still; POST here to continue its work.
    """
    jobs = _jobs(request)
    job = jobs.latest("rebuild", known(backend, name))
    abandoned = await _abandoned(backend, jobs, name)
    if abandoned is not None:
        return abandoned
    if job is None or job.state != "running":
        elsewhere = await backend.db.read(lambda conn: generations.building(conn, name))
        if elsewhere is not None:
            return _rebuild_elsewhere(elsewhere)
    if job is None:
        raise Problem(404, "no_rebuild", f"{name} was not rebuilt since this process started: POST here to begin")
    return _rebuild_document(name, job)


async def _abandoned(backend: Backend, jobs: Jobs, name: str) -> dict[str, Any] | None:
    """The document of a rebuild whose process died or stands still, unless another one is about to go on with it."""
    building, held = await backend.db.read(lambda conn: find_building(conn, name))
    if held or _begun(backend, jobs, name):
        return None
    last = jobs.latest("rebuild", name)
    said = f" ({last.error})" if last is not None and last.error else ""
    told = {"state": "abandoned", "eta_s": None, "error": why_abandoned(name) + said}
    if building is not None:
        return _rebuild_elsewhere(building) | told
    job = jobs.running("rebuild", name)
    return None if job is None else _rebuild_document(name, job) | told


def _rebuild_document(name: str, job: Job) -> dict[str, Any]:
    result = job.result if isinstance(job.result, dict) else {}
    told = {"projection": name, "generation": result.get("generation"), "note": result.get("note", "")}
    return {**job.document(), **told}


def _rebuild_elsewhere(building: Generation) -> dict[str, Any]:
    """The same document for a generation that another process builds: what its builder wrote into the registry."""
    told = building.progress
    return {
        "id": building.name,
        "kind": "rebuild",
        "projections": [building.projection],
        "state": "running",
        "phase": told.get("phase", "starting"),
        "events": told.get("done", 0),
        "total": told.get("total", 0),
        "events_per_s": round(told.get("events_per_s", 0)),
        "eta_s": told.get("eta_s"),
        "seconds": round(max(0.0, time.time() - building.created_ms / 1000), 3),
        "result": None,
        "error": "",
        "projection": building.projection,
        "generation": None,
        "note": "",
    }


@router.post("/v1/verify", status_code=202)
async def verify(
    backend: BackendDep,
    request: Request,
    response: Response,
    projections: Annotated[list[str] | None, Body(embed=True)] = None,
) -> dict[str, Any]:
    """Refold projections (default: all) into scratch generations and compare. Poll the answer's `Location`."""
    names = [known(backend, name) for name in projections or sorted(backend.projections)]
    job = _jobs(request).start("verify", names)
    response.headers["location"] = f"/v1/verify/{job.id}"
    return job.document()


@router.get("/v1/verify/{id:name}")
async def verified(id: str, request: Request) -> dict[str, Any]:
    """How far a verification is; its `result` once it is done."""
    job = _jobs(request).get(id)
    if job is None or job.kind != "verify":
        raise Problem(404, "no_job", f"there is no verification {id!r} in this process: POST /v1/verify begins one")
    return job.document()


@router.get("/v1/generations")
async def list_generations(
    backend: BackendDep, page: PageParam, projection: Annotated[str | None, Query()] = None
) -> dict[str, Any]:
    """The generations of the read models, the newest of each first."""
    if projection is not None:
        known(backend, projection)
    found = await backend.db.read(lambda conn: generations.list_all(conn, projection))
    return page.slice([_generation(backend, one) for one in found])


def _generation(backend: Backend, generation: Generation) -> dict[str, Any]:
    activated = generation.activated_ms
    projection = backend.projections.get(generation.projection)
    return {
        "name": generation.name,
        "projection": generation.projection,
        "generation": generation.number,
        "state": generation.state,
        "version": generation.version,
        "fingerprint": generation.fingerprint,
        "current_code": projection is not None and generation.matches(projection),
        "progress": dict(generation.progress),
        "created": rfc3339(generation.created_ms),
        "activated": None if activated is None else rfc3339(activated),
    }
