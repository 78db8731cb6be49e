"""What requests are given: the backend, the organisation they act for, the position they want to read after."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Header, Query, Request

from services.api.problems import Problem
from services.composition import Backend

DEFAULT_ORG = "default"
MAX_ORG_CHARS = 256


def _backend(request: Request) -> Backend:
    return cast(Backend, request.app.state.backend)


def _org(x_refold_org: Annotated[str, Header(description="Organisation of the request")] = DEFAULT_ORG) -> str:
    if not x_refold_org.strip() or len(x_refold_org) > MAX_ORG_CHARS or not x_refold_org.isprintable():
        raise Problem(422, "bad_org", f"`X-Refold-Org` is no name of 1 to {MAX_ORG_CHARS} printable characters")
    return x_refold_org


BackendDep = Annotated[Backend, Depends(_backend)]
OrgDep = Annotated[str, Depends(_org)]
After = Annotated[
    str | None, Query(description="Position token of a publish: the answer holds at least what that publish stored")
]
