"""``/v1/experiences/search``: what a user or an agent has been through, by likeness to what is to be done now."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from projections.queries.beliefs import experiences_of
from services.api.beliefs import BELIEFS
from services.api.deps import After, BackendDep, ComparisonDep, OrgDep
from services.api.memories import one_scope
from services.api.reading import read
from services.searching.experiences import MOST, meant, passages_of, ranked

router = APIRouter(tags=["beliefs"])
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
    work = partial(experiences_of, org=org, scope=scope, limit=MOST)
    found = await read(backend, BELIEFS, work, org=org, key=scope, after=after)
    passages = await asyncio.to_thread(lambda: [passages_of(one) for one in found.value])
    compared = await comparison.compare(org, q, meant(passages))
    likes = await asyncio.to_thread(ranked, passages, q, compared.cosines)
    items = [
        {**found.value[like.number], "relevance": like.relevance, **({"signals": like.signals} if explain else {})}
        for like in likes
        if like.relevance >= threshold
    ]
    return {"items": items[:top_k], "total": len(items), "scope": scope, "model": compared.model, "why": compared.why,
            "read": found.note}  # fmt: skip
