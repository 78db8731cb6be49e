"""``/v1/experiences/search``: what a user or an agent has been through, by likeness to what is to be done now."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from projections.queries.beliefs import experiences_named, experiences_of
from services.api.beliefs import BELIEFS
from services.api.deps import After, BackendDep, ComparisonDep, OrgDep
from services.api.memories import one_scope
from services.api.reading import read
from services.searching.experiences import MOST, meant, passages_of, ranked

router = APIRouter(tags=["beliefs"])
PAGE = 100
User = Annotated[str, Query(max_length=256, description="Of this user")]
Agent = Annotated[str, Query(max_length=256, description="Of this agent: tools and how they ended, nobody's words")]


@router.get("/v1/experiences/search")
async def search(
    backend: BackendDep,
    org: OrgDep,
    comparison: ComparisonDep,
    q: Annotated[str, Query(description="What is to be done, in any language")] = "",
    user: User = "",
    agent: Agent = "",
    top_k: Annotated[int, Query(ge=1, le=200)] = 10,
    threshold: Annotated[float, Query(ge=0, le=1, description="Least relevance")] = 0.0,
    explain: bool = False,
    after: After = None,
) -> dict[str, Any]:
    """Experiences that are like a query, the best first; the latest of a scope for an empty one.

    `model` is whose vectors were compared; empty where words alone were, and `why` then says the reason. Of a scope the
    latest 2,000 are looked at, and vectors are made of at most 256 passages a search.
    """
    scope = one_scope(user, agent)
    found = await read(backend, BELIEFS, partial(_searched, org=org, scope=scope), org=org, key=scope, after=after)
    runs, passages = [run for run, _ in found.value], [texts for _, texts in found.value]
    compared = await comparison.compare(org, q, meant(passages))
    ranking = await asyncio.to_thread(ranked, passages, q, compared.cosines)
    likes = [like for like in ranking if like.relevance >= threshold]
    best = {runs[like.number]: like for like in likes[:top_k]}
    work = partial(experiences_named, org=org, scope=scope, runs=list(best))
    named = (await read(backend, BELIEFS, work, org=org, key=scope)).value
    items = [
        {**named[run], "relevance": like.relevance, **({"signals": like.signals} if explain else {})}
        for run, like in best.items()
        if run in named
    ]
    return {"items": items, "total": len(likes), "scope": scope, "model": compared.model, "why": compared.why,
            "read": found.note}  # fmt: skip


def _searched(conn: Connection, org: str, scope: str) -> list[tuple[str, list[str]]]:
    """Run and passages of each experience. Page by page: all sheets at once would take hundreds of megabytes."""
    found: list[tuple[str, list[str]]] = []
    for offset in range(0, MOST, PAGE):
        page = experiences_of(conn, org, scope, limit=min(PAGE, MOST - offset), offset=offset)
        found += [(one["run"], passages_of(one)) for one in page]
        if len(page) < PAGE:
            break
    return found
