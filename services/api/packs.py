"""``/v1/packs``: memory packs: a scope as a file to take away, such a file taken in, and what was taken in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from events.errors import RefoldError
from services.api.body import read_body
from services.api.deps import After, BackendDep, OrgDep
from services.api.memories import one_scope
from services.api.paging import PageParam
from services.api.problems import problem_of
from services.api.reading import now
from services.packs.form import MAX_PACK_BYTES, Scope
from services.packs.gathering import gather
from services.packs.importing import Importing, Progress
from services.packs.imports import imports_of
from services.packs.proposals import Target
from services.packs.reading import read_pack
from services.packs.writing import write_pack

router = APIRouter(tags=["packs"])
MEDIA_TYPE = "application/zip"
LINES = "application/x-ndjson"
User = Annotated[str, Query(max_length=256, description="Of this user")]
Agent = Annotated[str, Query(max_length=256, description="Of this agent; with neither, of the organisation")]
_BODY = {"requestBody": {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}}


@router.get("/v1/packs/export", response_class=Response)
async def export(backend: BackendDep, org: OrgDep, user: User = "", agent: Agent = "", after: After = None) -> Response:
    """Memories, beliefs with their evidence, notes and settlements of one scope, as a zip of JSON lines.

    The same state makes the same bytes all day. Secrets are masked, and there are no vectors in it.
    """
    scope = Scope.of(one_scope(user, agent))
    wait_s = backend.settings.read_timeout_s
    rules = backend.belief_rules
    pack = await gather(backend.read_models, org, scope, now().date(), rules=rules, after=after, wait_s=wait_s)
    raw, digest = await asyncio.to_thread(lambda: (write_pack(pack), pack.digest))
    name = quote(f"{scope.key.replace('/', '-')}.refold.zip", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "x-refold-pack": digest}
    return Response(raw, media_type=MEDIA_TYPE, headers=headers)


@router.post("/v1/packs", openapi_extra=_BODY)
async def take_in(
    request: Request,
    backend: BackendDep,
    org: OrgDep,
    user: User = "",
    agent: Agent = "",
    confidence: Annotated[
        float | None, Query(ge=0, le=1, allow_inf_nan=False, description="What confidences are multiplied with")
    ] = None,
    progress: Annotated[bool, Query(description="Tell how far it is: JSON lines, the report last")] = False,
) -> Response:
    """Import a pack, into the scope that it came from or the one that is named. Answers with what became of each item.

    A damaged pack is refused before anything is done. Importing it again changes nothing, and finishes an import that
    was broken off.
    """
    raw = await read_body(request, MAX_PACK_BYTES)
    pack = await asyncio.to_thread(read_pack, raw)
    factor = backend.settings.pack_confidence if confidence is None else confidence
    scope = Scope.of(one_scope(user, agent)) if user or agent else pack.scope
    target = Target(scope, round(factor, 4))
    importing = await asyncio.to_thread(Importing, backend, org, pack, target)  # it takes a digest of all that is in it
    if progress:
        return StreamingResponse(_lines(importing), media_type=LINES)
    *_, report = [told async for told in importing.run(now())]
    return Response(orjson.dumps(report), media_type="application/json")


@router.get("/v1/packs")
async def list_(
    backend: BackendDep, org: OrgDep, page: PageParam, user: User = "", agent: Agent = ""
) -> dict[str, Any]:
    """What was imported into a scope: each pack with what became of it, and the notes and settlements it brought."""
    scope = one_scope(user, agent)
    found = await backend.db.read(partial(imports_of, org=org, scope=scope))
    return {**page.slice(found), "scope": scope}


async def _lines(importing: Importing) -> AsyncIterator[bytes]:
    """Progress, then the report or, since the answer has begun, the problem."""
    try:
        async for told in importing.run(now()):
            line = {"progress": told._asdict()} if isinstance(told, Progress) else {"report": told}
            yield orjson.dumps(line) + b"\n"
    except RefoldError as error:
        problem = problem_of(error)
        yield (
            orjson.dumps({"problem": {"status": problem.status, "code": problem.code, "detail": problem.detail}})
            + b"\n"
        )
