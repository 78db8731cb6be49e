"""What requests are given: the backend, its jobs, the organisation they act for, the position to read after."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Header, Query, Request

from services.api.jobs import Jobs
from services.api.problems import Problem
from services.composition import Backend
from services.embedding.comparing import Comparison

DEFAULT_ORG = "default"
MAX_ORG_CHARS = 256


# async, or each of these would take a turn on a thread, for every request
async def _backend(request: Request) -> Backend:
    return cast(Backend, request.app.state.backend)


async def _jobs(request: Request) -> Jobs:
    return cast(Jobs, request.app.state.jobs)


async def _comparison(request: Request) -> Comparison:
    return cast(Comparison, request.app.state.comparison)


async def _org(
    x_refold_org: Annotated[str, Header(description="Organisation of the request, UTF-8")] = DEFAULT_ORG,
) -> str:
    try:
        org = x_refold_org.encode("latin-1").decode()  # the server takes the bytes of a header for Latin-1
    except UnicodeError:
        org = ""
    if not org.strip() or len(org) > MAX_ORG_CHARS or not org.isprintable():
        raise Problem(422, "bad_org", f"`X-Refold-Org` is no name of 1 to {MAX_ORG_CHARS} printable characters, UTF-8")
    return org


BackendDep = Annotated[Backend, Depends(_backend)]
ComparisonDep = Annotated[Comparison, Depends(_comparison)]
JobsDep = Annotated[Jobs, Depends(_jobs)]
OrgDep = Annotated[str, Depends(_org)]
After = Annotated[
    str | None, Query(description="Position token of a publish: the answer holds at least what that publish stored")
]
