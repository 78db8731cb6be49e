"""``/``, ``/healthz`` and ``/readyz``: what this is, that it lives, that it can serve, with what is wrong when not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from events.errors import RefoldError
from events.log.client import ping
from projections.status import ProjectionStatus
from services.api.deps import BackendDep
from services.api.lag import lag_document
from services.composition import Backend
from services.overview import soon

router = APIRouter(tags=["health"])


@router.get("/")
async def root(request: Request) -> dict[str, str]:
    """What this is, and where it is described."""
    return {"name": "refold", "version": request.app.version, "openapi": "/openapi.json", "health": "/readyz"}


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process is alive."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(backend: BackendDep, response: Response) -> dict[str, Any]:
    """Whether events can be published and read models read; 503 when not. Details either way.

    A read model that is behind, stuck or stale is read as it is: that is told, and is no reason to send no requests.
    """
    checks = {"redis": await _redis(backend), "store": await _store(backend)}
    projections: dict[str, Any] = {}
    if not checks["store"]:
        try:
            projections = {status.name: _document(status) for status in await soon(backend.read_models.status())}
        except RefoldError as error:
            checks["read_models"] = str(error)
    ready = not any(checks.values()) and all(one["state"] != "missing" for one in projections.values())
    if not ready:
        response.status_code = 503
        response.headers["retry-after"] = "1"
    return {
        "ready": ready,
        "checks": {name: error or "ok" for name, error in checks.items()},
        "projections": projections,
        "services": {name: asdict(status) for name, status in backend.supervisor.status.items()},
    }


def _document(status: ProjectionStatus) -> dict[str, Any]:
    told = {"generation": status.generation or None, "state": status.state, "reason": status.reason}
    return {**told, **lag_document(status), "dead_letters": status.dead_letters, "parked_keys": status.parked_keys}


async def _redis(backend: Backend) -> str:
    try:
        await soon(ping(backend.redis))
    except RefoldError as error:
        return str(error)
    return ""


async def _store(backend: Backend) -> str:
    try:
        await soon(backend.archive.watermarks())
    except RefoldError as error:
        return str(error)
    return ""
