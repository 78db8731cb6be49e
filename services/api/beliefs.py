"""``/v1/beliefs``, ``/v1/notices``, ``/v1/experiences``: what an agent, a user or the org learned, now or at a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from events.errors import Refused
from events.times import check_time, instant
from projections.queries import beliefs
from services.api.deps import After, BackendDep, OrgDep
from services.api.memories import one_scope
from services.api.paging import PageParam
from services.api.problems import Problem
from services.api.reading import missing, now, read

router = APIRouter(tags=["beliefs"])
BELIEFS = "beliefs"
STATUSES = ("candidate", "active", "constraint", "retired")
Agent = Annotated[str, Query(description="Of this agent")]
User = Annotated[str, Query(description="Of this user")]
At = Annotated[
    str,
    Query(
        description="As of this moment, RFC 3339, or the end of this UTC day: by what is known now of days until then"
    ),
]


@router.get("/v1/beliefs")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    agent: Agent = "",
    user: User = "",
    status: Annotated[str, Query(description=", ".join(STATUSES))] = "",
    at: At = "",
    after: After = None,
) -> dict[str, Any]:
    """Beliefs of a scope, the most confident first. All pages are of the moment that the first one was asked at."""
    scope, rules = one_scope(user, agent), backend.belief_rules
    if status not in ("", *STATUSES):
        raise Problem(422, "bad_parameter", f"`status` is one of {', '.join(STATUSES)}")
    begun, *place = page.place(str, float, str) or (at,)
    moment = _moment(begun)
    work = partial(beliefs.beliefs_of, org=org, scope=scope, now=moment, status=status, rules=rules)
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    left = [one for one in found.value if not place or beliefs.rank(one) > (-place[0], place[1])]
    shown = list(map(beliefs.without_secrets, left[: page.limit]))
    last = [moment.isoformat(), float(shown[-1]["confidence"]), shown[-1]["belief"]] if len(left) > page.limit else None
    return {**page.answer(shown, last), "scope": scope, "at": moment.isoformat(), "read": found.note}


@router.get("/v1/notices")
async def notices(
    backend: BackendDep, org: OrgDep, page: PageParam, agent: Agent = "", user: User = "", at: At = "",
    after: After = None,
) -> dict[str, Any]:  # fmt: skip
    """What went fatally wrong in a scope, a causal pattern once, the most widespread first."""
    scope = one_scope(user, agent)
    begun, start = page.place(str, int) or (at, 0)
    moment = _moment(begun)
    work = partial(beliefs.notices_of, org=org, scope=scope, now=moment, rules=backend.belief_rules)
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    end = max(start, 0) + page.limit
    shown = list(map(beliefs.without_secrets, found.value[max(start, 0) : end]))
    last = [moment.isoformat(), end] if end < len(found.value) else None
    return {**page.answer(shown, last), "scope": scope, "at": moment.isoformat(), "read": found.note}


@router.get("/v1/beliefs/{belief:name}")
async def show(
    belief: str, backend: BackendDep, org: OrgDep, agent: Agent = "", user: User = "", at: At = "", after: After = None
) -> dict[str, Any]:
    """One belief and why it is believed: its latest evidence down to ids of raw events, and what each day weighs."""
    scope, moment = one_scope(user, agent), _moment(at)
    work = partial(beliefs.belief_document, org=org, scope=scope, belief=belief, now=moment, rules=backend.belief_rules)
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    if found.value is None:
        raise missing(found, "no_belief", f"{scope} has no belief {belief!r}")
    shown = beliefs.without_secrets(found.value)
    return {**shown, "scope": scope, "at": moment.isoformat(), "read": found.note}


@router.get("/v1/beliefs/{belief:name}/evidence")
async def evidence(
    belief: str,
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    agent: Agent = "",
    user: User = "",
    at: At = "",
    after: After = None,
) -> dict[str, Any]:
    """All that a belief stands on, the latest first; with `at`, without what is dated later."""
    scope, moment = one_scope(user, agent), _moment(at) if at else None
    work = partial(
        beliefs.evidence_of, org=org, scope=scope, belief=belief, now=moment, limit=page.limit + 1, offset=page.offset
    )
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    shown = list(map(beliefs.without_secrets, found.value))
    return {**_page(page, shown), "scope": scope, "read": found.note}


@router.get("/v1/experiences")
async def experiences(
    backend: BackendDep, org: OrgDep, page: PageParam, agent: Agent = "", user: User = "", after: After = None
) -> dict[str, Any]:
    """What a scope keeps of its runs, the latest first."""
    scope = one_scope(user, agent)
    work = partial(beliefs.experiences_of, org=org, scope=scope, limit=page.limit + 1, offset=page.offset)
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    return {**_page(page, found.value), "scope": scope, "read": found.note}


def _page(page: PageParam, one_more: list[dict[str, Any]]) -> dict[str, Any]:
    follows = len(one_more) > page.limit
    return page.answer(one_more[: page.limit], [page.offset + page.limit] if follows else None)


def _moment(at: str) -> datetime:
    if not at:
        return now()
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", at, re.ASCII):
            return datetime.combine(instant(check_time(f"{at}T00:00:00Z")), time.max, UTC)
        return instant(check_time(at))
    except Refused as error:
        raise Problem(422, "bad_parameter", f"`at` is no moment: {error}") from error
