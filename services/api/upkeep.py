"""``/v1/verify``, dry runs, repairs, rollbacks, ``/v1/generations``: looking after the read models and their past."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from projections import generations
from projections.generations import Generation
from projections.rebuilding.rebuild import drop, drop_old
from projections.rebuilding.replaced import drop_replaced
from projections.rebuilding.scratch import drop_leftovers
from services.api.deps import BackendDep, JobsDep, OrgDep
from services.api.jobs import Job, Jobs
from services.api.listings import rfc3339
from services.api.paging import PageParam
from services.api.problems import Problem
from services.api.projections import known
from services.composition import Backend

router = APIRouter(tags=["upkeep"])

Key = Annotated[str | None, Query(description="Only the rows of this partition key, `task/t1` say", min_length=1)]
Tenant = Annotated[
    str | None, Query(description="Only the rows of this organisation; with `key` default: the caller's", min_length=1)
]


@router.post("/v1/verify", status_code=202)
async def verify(
    backend: BackendDep,
    jobs: JobsDep,
    response: Response,
    projections: Annotated[list[str] | None, Body(embed=True, min_length=1)] = None,
) -> dict[str, Any]:
    """Refold projections (default: all) into scratch generations and compare. Poll the answer's `Location`."""
    job = jobs.start("verify", [known(backend, name) for name in projections or sorted(backend.projections)])
    response.headers["location"] = f"/v1/verify/{job.id}"
    return job.document()


@router.get("/v1/verify/{id:name}")
async def verified(id: str, jobs: JobsDep) -> dict[str, Any]:
    """How far a verification is; its `result` once it is done."""
    return _verification(jobs, id).document()


@router.delete("/v1/verify/{id:name}", status_code=202)
async def cancel_verify(id: str, jobs: JobsDep) -> dict[str, Any]:
    """Cancel a verification. Poll here until it has ended."""
    return _cancelled(jobs, _verification(jobs, id))


@router.post("/v1/projections/{name:name}/dry-run", status_code=202)
async def dry_run(
    name: str,
    backend: BackendDep,
    jobs: JobsDep,
    org: OrgDep,
    response: Response,
    key: Key = None,
    tenant: Tenant = None,
    rate: Annotated[float | None, Query(gt=0, allow_inf_nan=False, description="Events a second at most")] = None,
) -> dict[str, Any]:
    """Tell what a rebuild by the running code would change, row by row. Changes nothing. Poll the `Location`."""
    slowly = [f"--rate={rate}"] if rate else []
    return _started(jobs, response, "dry-run", known(backend, name), *_scope(org, key, tenant), *slowly)


@router.post("/v1/projections/{name:name}/repair", status_code=202)
async def repair(
    name: str,
    backend: BackendDep,
    jobs: JobsDep,
    org: OrgDep,
    response: Response,
    key: Key = None,
    tenant: Tenant = None,
) -> dict[str, Any]:
    """Make the rows of one key, or of one tenant, anew from the archive, in the generation that is read.

    Its `result` tells what was changed. Poll the answer's `Location`.
    """
    if key is None and tenant is None:
        raise Problem(422, "no_scope", "name a `key` or a `tenant`: everything at once is a rebuild")
    return _started(jobs, response, "repair", known(backend, name), *_scope(org, key, tenant))


@router.post("/v1/projections/{name:name}/rollback", status_code=202)
async def rollback(name: str, backend: BackendDep, jobs: JobsDep, response: Response) -> dict[str, Any]:
    """Read the generation again that was read before the present one. Poll the answer's `Location`."""
    if await backend.db.read(partial(generations.previous, projection=known(backend, name))) is None:
        raise Problem(409, "no_generation", f"{name} has no earlier generation to go back to")
    return _started(jobs, response, "rollback", name)


@router.post("/v1/projections/{name:name}/drop-old")
async def drop_old_generations(
    name: str,
    backend: BackendDep,
    keep: Annotated[int, Query(ge=0, description="Earlier generations to keep for a rollback")] = 1,
) -> dict[str, Any]:
    """Drop earlier generations, those that failed, and what dry runs that were killed left, for good.

    With `keep` 0, those of the read models that it replaces, too.
    """
    work = partial(drop_old, known(backend, name), backend.stores, backend.db, keep=keep)
    dropped = [one.name for one in await asyncio.to_thread(work)]
    if keep == 0:
        replaced = await asyncio.to_thread(drop_replaced, backend.projections[name], backend.stores, backend.db)
        dropped += [one.name for one in replaced]
    dropped += await asyncio.to_thread(drop_leftovers, backend.stores, backend.db)
    return {"projection": name, "dropped": dropped}


@router.get("/v1/jobs/{id:name}")
async def job(id: str, jobs: JobsDep) -> dict[str, Any]:
    """How far a job that was begun here is; its `result` once it is done."""
    return _job(jobs, id).document()


@router.delete("/v1/jobs/{id:name}", status_code=202)
async def cancel_job(id: str, jobs: JobsDep) -> dict[str, Any]:
    """Cancel a job. Poll here until it has ended."""
    return _cancelled(jobs, _job(jobs, id))


@router.get("/v1/generations")
async def list_generations(
    backend: BackendDep, page: PageParam, projection: Annotated[str | None, Query()] = None
) -> dict[str, Any]:
    """The generations of the read models, the newest of each first."""
    if projection is not None:
        known(backend, projection)
    found = await backend.db.read(lambda conn: generations.list_all(conn, projection))
    return page.slice([_generation(backend, one) for one in found])


@router.delete("/v1/generations/{name:name}")
async def drop_generation(name: str, backend: BackendDep) -> dict[str, Any]:
    """Drop one generation with all its rows. Refused for one that is read or being built."""
    everything = await backend.db.read(generations.list_all)
    found = next((one for one in everything if one.name == name and one.state != "dropped"), None)
    if found is None:
        raise Problem(404, "no_generation", f"there is no generation {name!r}: see `refold generations`")
    await asyncio.to_thread(drop, found, backend.stores, backend.db)
    return _generation(backend, found._replace(state="dropped"))


def _scope(org: str, key: str | None, tenant: str | None) -> list[str]:
    if key is None:
        return [] if tenant is None else [f"--org={tenant}"]
    return [f"--org={tenant or org}", f"--key={key}"]


def _started(jobs: Jobs, response: Response, kind: str, name: str, *options: str) -> dict[str, Any]:
    begun = jobs.start(kind, [name], *options)
    response.headers["location"] = f"/v1/jobs/{begun.id}"
    return begun.document()


def _cancelled(jobs: Jobs, found: Job) -> dict[str, Any]:
    if not found.running:
        raise Problem(409, "ended", f"the {found.kind} has ended: there is nothing to cancel")
    jobs.cancel(found)
    return found.document()


def _job(jobs: Jobs, id: str) -> Job:
    found = jobs.get(id)
    if found is None or found.kind in ("rebuild", "retry"):
        raise Problem(404, "no_job", f"there is no job {id!r} in this process")
    return found


def _verification(jobs: Jobs, id: str) -> Job:
    found = jobs.get(id)
    if found is None or found.kind != "verify":
        raise Problem(404, "no_job", f"there is no verification {id!r} in this process: POST /v1/verify begins one")
    return found


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
