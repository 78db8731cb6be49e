"""The FastAPI application: routes, errors, middleware. ``create_app`` is all that others need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from starlette.routing import Route

from services.api import (
    beliefs,
    calibrations,
    cards,
    context,
    deadletters,
    embeddings,
    erasures,
    events,
    experiences,
    exports,
    health,
    history,
    log,
    memories,
    memory_changes,
    metrics,
    packs,
    policy,
    problems,
    projections,
    rebuilds,
    runs,
    search,
    settlements,
    tables,
    tasks,
    threads,
    upkeep,
)
from services.api.body import MAX_BODY_BYTES, install_too_large
from services.api.in_time import ReadsInTime
from services.api.jobs import Jobs
from services.api.paths import RoutePathAsSent
from services.composition import Backend
from services.embedding.comparing import Comparison
from services.mcp.endpoint import McpEndpoint
from services.policies.scopes import PolicyScopes
from services.searching.opening import open_searcher

_DESCRIPTION = """Publish what agents do; read what it means: task state, memory cards, settlements, beliefs;
keep threads of checkpoints, and items.

Names in paths are percent-encoded as one segment. Errors are problem documents (RFC 9457). Lists are pages: `limit`,
`cursor`, `next_cursor`. A publish answers with a position token; a read takes it as `after` and waits until it has
folded that far."""


def create_app(backend: Backend, *, max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """The HTTP API of a backend. ``max_body_bytes`` bounds a request body.

    The app stops the jobs that it started when its lifespan ends; the backend belongs to the caller.
    """
    jobs = Jobs(backend.settings.environ())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await app.state.mcp.stop()
        await jobs.stop()
        await app.state.searcher.close()

    # no interactive documentation: it would load scripts from elsewhere; the OpenAPI document itself is served
    app = FastAPI(
        title="Refold", version=_version(), description=_DESCRIPTION, lifespan=lifespan,
        docs_url=None, redoc_url=None, openapi_url="/openapi.json", redirect_slashes=False,
    )  # fmt: skip
    app.state.backend = backend
    app.state.jobs = jobs
    app.state.folding = history.Folding()
    app.state.searcher = open_searcher(backend)
    app.state.comparison = Comparison(backend.embeddings, backend.db)
    app.state.policies = PolicyScopes(
        backend.read_models, backend.db, backend.partitions, backend.belief_rules,
        timeout_s=backend.settings.read_timeout_s,
    )  # fmt: skip
    app.state.max_body_bytes = max_body_bytes
    reads = (
        tasks, history, exports, runs, settlements, search, cards, context, beliefs, experiences, calibrations, policy,
        threads, tables,
    )  # fmt: skip
    upkeeping = (projections, rebuilds, upkeep, deadletters, erasures, log, embeddings, health, metrics)
    for module in (events, *reads, memories, memory_changes, packs, *upkeeping):
        app.include_router(module.router)
    app.state.mcp = McpEndpoint(app)
    app.router.routes.append(Route("/mcp", app.state.mcp))
    problems.install(app)
    install_too_large(app)
    settings = backend.settings
    app.add_middleware(ReadsInTime, limit_s=settings.read_timeout_s + settings.store_timeout_s)
    app.add_middleware(RoutePathAsSent)
    return app


def _version() -> str:
    try:
        return version("refold")
    except PackageNotFoundError:
        return "0"
