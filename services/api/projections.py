"""``/v1/projections``: the read models, and how far they are."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from projections.status import ProjectionStatus, why_stale
from services.api.deps import BackendDep, JobsDep
from services.api.lag import lag_document, partition_document
from services.api.problems import Problem
from services.composition import Backend

router = APIRouter(tags=["projections"])

_START_S = 10.0
"""How long a job process may take to begin, or to notice that a lease has ended."""


def start_patience_s(backend: Backend) -> float:
    """How long a job that has told nothing still counts as one that is about to."""
    return backend.settings.lease_s + _START_S


def known(backend: Backend, name: str) -> str:
    """The name of a projection that is registered. Raises Problem, listing those that are, for another one."""
    if name not in backend.projections:
        names = ", ".join(sorted(backend.projections))
        raise Problem(404, "no_projection", f"there is no projection {name!r}; there are {names}")
    return name


@router.get("/v1/projections")
async def list_(
    backend: BackendDep,
    jobs: JobsDep,
    after: Annotated[str | None, Query(description="Position token; `reached` tells who has passed it")] = None,
    detail: Annotated[bool, Query(description="With each partition: who folds it, and how far it is")] = False,
) -> dict[str, Any]:
    """Every read model: its generation, how far it is behind, how fast it gets on, what it waits for."""
    patience_s = start_patience_s(backend)
    # before, too: a rebuild that ends while the registry is read is found there as one that nobody is at
    before = {name for name in backend.projections if jobs.begun(name, patience_s)}
    statuses = await backend.read_models.status()
    items = [_status(status, begun=status.name in before or jobs.begun(status.name, patience_s)) for status in statuses]
    if detail:
        for item, status in zip(items, statuses, strict=True):
            item["partitions"] = [partition_document(each) for each in status.partitions]
    if after:
        for item in items:
            item["reached"] = item["state"] != "missing" and await _reached(backend, item["name"], after)
    return {"items": items, "next_cursor": None}


async def _reached(backend: Backend, name: str, after: str) -> bool:
    return (await backend.read_models.read(name, lambda _: None, after, 0)).reached


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
