"""``/v1/projections/.../rebuild``: refolding read models beside the ones that are read, watched and cancelled."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from projections import generations
from projections.generations import Generation
from projections.rebuilding import cancel
from projections.status import find_building, why_abandoned
from services.api.deps import BackendDep, JobsDep
from services.api.jobs import Job, Jobs
from services.api.problems import Problem
from services.api.projections import known, start_patience_s
from services.composition import Backend

router = APIRouter(tags=["rebuild"])


class Wanted(BaseModel):
    """How to rebuild."""

    model_config = ConfigDict(extra="forbid")

    check: bool = Field(False, description="Compare with a second, independent refold before the swap")
    rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Events a second at most, over all processes"
    )
    processes: int | None = Field(None, ge=1, le=256, description="Processes that fold; default: one a core")
    allow_dead_letters: bool = Field(
        False, description="Swap though the new code cannot fold events that the old one could"
    )

    def options(self) -> list[str]:
        """As the job process takes them."""
        given = ["--check"] if self.check else []
        given += ["--allow-dead-letters"] if self.allow_dead_letters else []
        given += [f"--rate={self.rate}"] if self.rate else []
        return given + ([f"--processes={self.processes}"] if self.processes else [])


class WantedOfSeveral(Wanted):
    """Which to rebuild, and how."""

    projections: list[str] | None = Field(None, min_length=1, description="Their names; default: all")


@router.post("/v1/projections/rebuild", status_code=202)
async def rebuild_several(
    backend: BackendDep, jobs: JobsDep, wanted: Annotated[WantedOfSeveral, Body()]
) -> dict[str, Any]:
    """Refold several projections in one pass over the archive, each swapped when it is ready.

    Those that are being rebuilt already are joined. Watch each at its own path.
    """
    names = [known(backend, name) for name in dict.fromkeys(wanted.projections or sorted(backend.projections))]
    return {"items": await _begin(backend, jobs, names, wanted.options())}


@router.post("/v1/projections/{name:name}/rebuild", status_code=202)
async def rebuild(
    name: str,
    backend: BackendDep,
    jobs: JobsDep,
    request: Request,
    response: Response,
    wanted: Annotated[Wanted, Query()],
) -> dict[str, Any]:
    """Refold a projection beside the one that is read, then swap. A running rebuild is joined, not doubled.

    ``note`` says so when the one that was joined lacks what was asked for.
    """
    response.headers["location"] = str(request.url.path)
    return (await _begin(backend, jobs, [known(backend, name)], wanted.options()))[0]


async def _begin(backend: Backend, jobs: Jobs, names: list[str], options: list[str]) -> list[dict[str, Any]]:
    joined = {}
    for name in names:
        job = jobs.running("rebuild", name)
        if job is not None and await _abandoned(backend, jobs, name) is None:
            joined[name] = job
    new = [name for name in names if name not in joined]
    started = jobs.start("rebuild", new, *options) if new else None
    documents = []
    for name in names:
        job = joined.get(name) or started
        assert job is not None
        lacks = [option for option in options if option not in job.options]
        documents.append(_document(name, job) | ({"note": _joined(lacks)} if lacks else {}))
    return documents


def _joined(lacks: list[str]) -> str:
    without = " and ".join("the check" if option == "--check" else option for option in lacks)
    return f"a rebuild without {without} was running already and was joined: rebuild once more to have that"


@router.get("/v1/projections/{name:name}/rebuild")
async def rebuild_progress(name: str, backend: BackendDep, jobs: JobsDep) -> dict[str, Any]:
    """How far the rebuild of a projection is, whichever process does it; else how the last one from here ended.

    ``abandoned``: its process died or stands still; POST here to continue its work.
    """
    job = jobs.latest("rebuild", known(backend, name))
    abandoned = await _abandoned(backend, jobs, name)
    if abandoned is not None:
        return abandoned
    if job is None or job.part(name).state != "running":
        elsewhere = await backend.db.read(lambda conn: generations.building(conn, name))
        if elsewhere is not None:
            return _elsewhere(elsewhere)
    if job is None:
        raise Problem(404, "no_rebuild", f"{name} was not rebuilt since this process started: POST here to begin")
    return _document(name, job)


@router.delete("/v1/projections/{name:name}/rebuild", status_code=202)
async def cancel_rebuild(name: str, backend: BackendDep, jobs: JobsDep) -> dict[str, Any]:
    """Cancel the rebuild of a projection, wherever it runs; what is read stays as it is. Poll here until it has ended.

    What was left by a builder that died is dropped at once.
    """
    job = jobs.running("rebuild", known(backend, name))
    building, held = await backend.db.read(lambda conn: find_building(conn, name))
    if building is not None and held:
        await backend.db.write(lambda conn: cancel.request(conn, building))
    if job is not None:
        jobs.cancel(job, name)
    if building is not None and not held and not jobs.begun(name, start_patience_s(backend)):
        await asyncio.to_thread(cancel.abandon, name, backend.stores, backend.db)
        return _elsewhere(building) | {"state": "cancelled", "eta_s": None}
    if job is not None:
        return _document(name, job)
    if building is None:
        raise Problem(409, "no_rebuild", f"no rebuild of {name} runs: there is nothing to cancel")
    return _elsewhere(building)


async def _abandoned(backend: Backend, jobs: Jobs, name: str) -> dict[str, Any] | None:
    """The document of a rebuild whose process died or stands still, unless another one is about to go on with it."""
    building, held = await backend.db.read(lambda conn: find_building(conn, name))
    if held or jobs.begun(name, start_patience_s(backend)):
        return None
    last = jobs.latest("rebuild", name)
    error = "" if last is None else last.part(name).error
    told = {"state": "abandoned", "eta_s": None, "error": why_abandoned(name) + (f" ({error})" if error else "")}
    if building is not None:
        return _elsewhere(building) | told
    job = jobs.running("rebuild", name)
    return None if job is None else _document(name, job) | told


def _document(name: str, job: Job) -> dict[str, Any]:
    document = job.document(name)
    result = document["result"] if isinstance(document["result"], dict) else {}
    return {**document, "projection": name, "generation": result.get("generation"), "note": result.get("note", "")}


def _elsewhere(building: Generation) -> dict[str, Any]:
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
