"""``/v1/beliefs``: what an agent, a user or the organisation has learned to do, at this moment."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from projections.queries import beliefs
from services.api.deps import After, BackendDep, OrgDep
from services.api.paging import PageParam
from services.api.problems import Problem
from services.api.reading import missing, now, read

router = APIRouter(tags=["beliefs"])
BELIEFS = "beliefs"
Agent = Annotated[str, Query(description="Beliefs of this agent")]
User = Annotated[str, Query(description="Beliefs of this user")]


@router.get("/v1/beliefs")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    agent: Agent = "",
    user: User = "",
    status: Annotated[str, Query(description="candidate, active, constraint or retired")] = "",
    after: After = None,
) -> dict[str, Any]:
    """Beliefs of a scope, the most confident first, and notices of what went fatally wrong there."""
    scope, moment = _scope(agent, user), now()

    def work(conn: Connection) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        found = beliefs.beliefs_of(conn, org, scope, now=moment, status=status)
        return found, beliefs.notices_of(conn, org, scope)

    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    believed, notices = found.value
    return {**page.slice(believed), "scope": scope, "notices": notices, "read": found.note}


@router.get("/v1/beliefs/{belief:name}")
async def show(
    belief: str, backend: BackendDep, org: OrgDep, agent: Agent = "", user: User = "", after: After = None
) -> dict[str, Any]:
    """One belief with its evidence, down to event ids."""
    scope = _scope(agent, user)
    work = partial(beliefs.belief_document, org=org, scope=scope, belief=belief, now=now())
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    if found.value is None:
        raise missing(found, "no_belief", f"{scope} has no belief {belief!r}")
    return {**found.value, "scope": scope, "read": found.note}


def _scope(agent: str, user: str) -> str:
    if agent and user:
        raise Problem(422, "bad_parameter", "give `agent` or `user`, not both: each has beliefs of its own")
    return f"agent/{agent}" if agent else f"user/{user}" if user else "org"
