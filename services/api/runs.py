"""``/v1/runs``: the index of runs, one run, its events; one event by its id."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from services.api import listings
from services.api.deps import BackendDep, OrgDep
from services.api.paging import PageParam

router = APIRouter(tags=["runs"])


@router.get("/v1/runs")
async def list_(
    backend: BackendDep, org: OrgDep, page: PageParam, task: Annotated[str | None, Query()] = None
) -> dict[str, Any]:
    """Runs (of a task) by when their start was archived; `order=desc` is the newest first."""
    return await backend.db.read(lambda conn: listings.runs(conn, org, task, page))


@router.get("/v1/runs/{run:name}")
async def show(run: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """One run: how it started, how it ended, how many events it has."""
    return await backend.db.read(lambda conn: listings.run_summary(conn, org, run))


@router.get("/v1/runs/{run:name}/events")
async def events(run: str, backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """The events of a run as they were received, as CloudEvents, with verdict and position.

    Those of one moment stand by partition and log position.
    """
    return await backend.db.read(lambda conn: listings.run_events(conn, org, run, page))


@router.get("/v1/events/{event:name}")
async def event(event: str, backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """The event of an id, as a CloudEvent, with verdict and position; several where several partition keys have it."""
    return await backend.db.read(lambda conn: listings.events_of_id(conn, org, event, page))
