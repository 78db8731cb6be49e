"""``/v1/memories``: reading long-term memory: lists, one with its history, search, and what became of proposals."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Query, Request
from sqlalchemy import Connection

from events.errors import Transient
from events.keys import members_of
from projections.queries import memories
from projections.queries.memories import Wanted
from services.api import memory_bodies as bodies
from services.api.deps import After, BackendDep, ComparisonDep, OrgDep
from services.api.paging import PageParam
from services.api.problems import Problem
from services.api.reading import Found, missing, now, read
from services.composition import Backend
from services.curation.search import rank
from services.curation.statements import gist
from services.embedding.comparing import MOST_COMPARED, Comparison

router = APIRouter(tags=["memories"])
MEMORIES = "memories"

User = Annotated[str, Query(description="Of this user")]
Agent = Annotated[str, Query(description="Of this agent")]
Status = Annotated[
    Literal["active", "superseded", "invalidated", "expired", "deleted", "any"], Query(description="`any` for all")
]


@router.get("/v1/memories")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    user: User = "",
    agent: Agent = "",
    with_org: Annotated[bool, Query(alias="org", description="Those of the organisation too")] = False,
    kind: str = "",
    tag: str = "",
    session: str = "",
    status: Status = "active",
    after: After = None,
) -> dict[str, Any]:
    """Memories of a user, an agent, or both; of the organisation where none is named. The most important first."""
    scopes = scopes_of(user, agent, with_org=with_org)
    wanted = Wanted("" if status == "any" else status, kind, tag, session)
    found = await _of_scopes(backend, org, scopes, wanted, after)
    return {**page.slice(found.value), "scopes": scopes, "read": found.note}


@router.post("/v1/memories/search", openapi_extra=bodies.schema(bodies.Search))
async def search(request: Request, backend: BackendDep, org: OrgDep, comparison: ComparisonDep) -> dict[str, Any]:
    """Memories by what they say and mean, the best first. What is found counts as recalled, but for `record` false."""
    return await _search(await bodies.parsed(request, bodies.Search), backend, org, comparison)


@router.get("/v1/memories/search")
async def search_by_words(
    backend: BackendDep,
    org: OrgDep,
    comparison: ComparisonDep,
    q: Annotated[str, Query(description="Words in any language")] = "",
    user: User = "",
    agent: Agent = "",
    with_org: Annotated[bool, Query(alias="org")] = False,
    top_k: Annotated[int, Query(ge=1, le=200)] = 10,
    explain: bool = False,
    after: After = None,
) -> dict[str, Any]:
    """The same without a body, and without counting it as a recall."""
    body = bodies.Search.model_construct(
        query=q, user=user, agent=agent, org=with_org, top_k=top_k, explain=explain, record=False, after=after
    )
    return await _search(body, backend, org, comparison)


@router.get("/v1/memories/proposals")
async def proposals(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    user: User = "",
    agent: Agent = "",
    status: Annotated[Literal["pending", "admitted", "rejected", ""], Query()] = "",
    after: After = None,
) -> dict[str, Any]:
    """What was proposed in a scope, in order, and what became of it, with the reason."""
    scope = one_scope(user, agent)
    work = partial(memories.proposals_of, org=org, scope=scope, status=status)
    found = await read(backend, MEMORIES, work, org=org, key=scope, after=after)
    return {**page.slice(found.value), "scope": scope, "read": found.note}


@router.get("/v1/memories/proposals/{proposal:name}")
async def proposal(
    proposal: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", after: After = None
) -> dict[str, Any]:
    """What became of one proposal: ``pending``, ``admitted`` with its memory, or ``rejected`` with the reason."""
    found = await found_proposal(backend, org, proposal, user, agent, after)
    return {**found.value, "read": found.note}


@router.get("/v1/memories/{memory:name}")
async def show(
    memory: str, backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", after: After = None
) -> dict[str, Any]:
    """One memory. Of a deleted one, everything but its words."""
    found = await found_memory(backend, org, memory, user, agent, after)
    return {**found.value, "read": found.note}


@router.get("/v1/memories/{memory:name}/history")
async def history(
    memory: str, backend: BackendDep, org: OrgDep, page: PageParam, user: User = "", agent: Agent = "",
    after: After = None,
) -> dict[str, Any]:  # fmt: skip
    """Every change of a memory, the oldest first."""
    known = await found_memory(backend, org, memory, user, agent, after)
    work = partial(memories.history_of, org=org, scope=known.value["scope"], memory=memory)
    found = await read(backend, MEMORIES, work, org=org, key=known.value["scope"], after=after)
    return {**page.slice(found.value), "memory": memory, "scope": known.value["scope"], "read": found.note}


def one_scope(user: str, agent: str) -> str:
    """The scope that a request names. Raises Problem for two, and for a name that no store takes."""
    if agent and user:
        raise Problem(422, "bad_parameter", "give `agent` or `user`, not both: each is a scope of its own")
    if "\0" in user + agent:
        raise Problem(422, "bad_parameter", "no name has a NUL in it")
    return f"agent/{agent}" if agent else f"user/{user}" if user else "org"


def scopes_of(user: str, agent: str, *, with_org: bool) -> list[str]:
    """The scopes that a request reads together."""
    named = [scope for scope in (user and f"user/{user}", agent and f"agent/{agent}") if scope]
    return [*named, "org"] if with_org or not named else named


async def found_memory(
    backend: Backend, org: str, memory: str, user: str, agent: str, after: str | None = None
) -> Found:
    """The document of a memory, wherever in the org it is, or in the scope that is named. Raises Problem."""
    found = await _found(
        backend, org, memory, (user, agent), after, memories.scopes_with,
        lambda conn, scope: memories.memory_document(conn, org, scope, memory, now=now()),
    )  # fmt: skip
    if found.value is None:
        raise missing(found, "no_memory", f"there is no memory {memory!r}")
    return found


async def found_proposal(
    backend: Backend, org: str, proposal: str, user: str, agent: str, after: str | None = None
) -> Found:
    """As ``found_memory``, of a proposal."""
    found = await _found(
        backend, org, proposal, (user, agent), after, memories.scopes_with_proposal,
        lambda conn, scope: memories.proposal_document(conn, org, scope, proposal),
    )  # fmt: skip
    if found.value is None:
        raise missing(found, "no_proposal", f"nothing was proposed under {proposal!r}")
    return found


async def _found(
    backend: Backend, org: str, name: str, whose: tuple[str, str], after: str | None, where: Any, document: Any
) -> Found:
    user, agent = whose
    named = one_scope(user, agent) if user or agent else ""

    def work(conn: Connection) -> Any:
        scopes = [named] if named else where(conn, org, name)
        if len(scopes) > 1:
            raise Problem(409, "ambiguous", f"several scopes have {name!r}: say whose with `user` or `agent`")
        return document(conn, scopes[0]) if scopes else None

    if "\0" in name:
        raise Problem(422, "bad_parameter", "no name has a NUL in it")
    return await read(backend, MEMORIES, work, org=org, key=named, after=after)


async def _of_scopes(backend: Backend, org: str, scopes: list[str], wanted: Wanted, after: str | None) -> Found:
    moment = now()

    def work(conn: Connection) -> list[dict[str, Any]]:
        found = [one for scope in scopes for one in memories.memories_of(conn, org, scope, now=moment, wanted=wanted)]
        return sorted(found, key=lambda memory: (-memory["importance"], memory["scope"], memory["memory"]))

    if any("\0" in text for text in (*scopes, *wanted)):
        raise Problem(422, "bad_parameter", "no name has a NUL in it")
    return await read(backend, MEMORIES, work, org=org, key=scopes[0] if len(scopes) == 1 else "", after=after)


async def _search(body: bodies.Search, backend: Backend, org: str, comparison: Comparison) -> dict[str, Any]:
    scopes = scopes_of(body.user, body.agent, with_org=body.org)
    wanted = Wanted("" if body.status == "any" else body.status, body.kind, body.tag, body.session)
    found = await _of_scopes(backend, org, scopes, wanted, body.after)
    said = [gist(one["content"]) for one in found.value[:MOST_COMPARED]]
    compared = await comparison.compare(org, gist(body.query), said)
    ranked = await asyncio.to_thread(rank, found.value, body.query, compared.known)
    hits = [hit for hit in ranked if hit.score >= body.threshold][: body.top_k]
    if body.record and hits:
        await _recalled(backend, org, body.query, [(hit.memory["scope"], hit.memory["memory"]) for hit in hits])
    items = [
        {**hit.memory, "relevance": hit.score, **({"signals": hit.signals} if body.explain else {})} for hit in hits
    ]
    return {"items": items, "scopes": scopes, "model": compared.model, "read": found.note}


async def _recalled(backend: Backend, org: str, query: str, hits: list[tuple[str, str]]) -> None:
    """Count what was found as recalled; a log that cannot be reached stops no search."""
    raws = [
        {
            "id": f"recalled-{uuid4()}",
            "type": "memory.recalled",
            **members_of(scope),
            "data": {"memories": [name for of, name in hits if of == scope], "scope": scope.partition("/")[0]},
        }
        for scope in dict.fromkeys(scope for scope, _ in hits)
    ]
    with suppress(Transient):
        await backend.publisher.publish(raws, org=org, ack="fast", source="memories")
