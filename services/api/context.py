"""``/v1/context``: a context within a budget, the same one again, and where a value was lost on its way into one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.times import written
from projections.context.assembly import DEFAULT_TOKENS, PARTS
from services.api.body import read_body
from services.api.deps import BackendDep, ComparisonDep, OrgDep
from services.api.policy import PoliciesDep
from services.api.problems import Problem
from services.api.recording import record
from services.api.search import SearcherDep
from services.contexts.making import Made, make, make_again
from services.contexts.request import ContextRequest, task_of
from services.contexts.why import explain

router = APIRouter(tags=["context"])


class ContextBody(BaseModel):
    """What a context is wanted for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: Annotated[str, Field(description="The task that it is for")]
    query: Annotated[
        str, Field(description="What is asked now; it brings cards of other tasks, and ends the context")
    ] = ""
    max_tokens: Annotated[int, Field(description="Most tokens of the whole, by Refold's estimate")] = DEFAULT_TOKENS
    parts: Annotated[list[str], Field(description=f"Of {', '.join(PARTS)}; all of them unless told")] = list(PARTS)
    mode: Annotated[str, Field(description="precise_planning, information_gathering or creative; else the run's")] = ""
    focus: Annotated[str, Field(description="Words of what is to be decided")] = ""
    originals: Annotated[list[str], Field(description="Cards whose originals are wanted whole: ids, or `#1-42`")] = []
    why: Annotated[str, Field(description="A value: the answer tells, too, where it was lost")] = ""
    after: Annotated[str, Field(description="Position token of a publish that the context must have seen")] = ""


async def _body(request: Request) -> ContextBody:
    raw = await read_body(request, request.app.state.max_body_bytes)
    try:
        return ContextBody.model_validate_json(raw or b"{}")
    except ValidationError as error:
        wrong = [f"`{'.'.join(map(str, one['loc'])) or 'body'}`: {one['msg']}" for one in error.errors()]
        raise Problem(422, "bad_parameter", "; ".join(wrong)) from error


_SCHEMA = {"requestBody": {"content": {"application/json": {"schema": ContextBody.model_json_schema()}}}}


@router.post("/v1/context", openapi_extra=_SCHEMA)
async def assemble(
    body: Annotated[ContextBody, Depends(_body)],
    backend: BackendDep,
    searcher: SearcherDep,
    comparison: ComparisonDep,
    policies: PoliciesDep,
    org: OrgDep,
    later: BackgroundTasks,
) -> dict[str, Any]:
    """The context of a task, in parts whose order never changes. What it was made of is recorded after the answer."""
    wanted = ContextRequest(
        task=body.task, query=body.query, max_tokens=body.max_tokens, parts=tuple(body.parts), mode=body.mode,
        focus=body.focus, originals=tuple(body.originals),
    )  # fmt: skip
    made = await make(backend, searcher, comparison, policies, org, wanted, body.after)
    later.add_task(record, backend, org, f"context {made.context}", made.events, "context")
    answer = {**_document(made), "read": made.notes}
    return {**answer, "why": await explain(backend, org, wanted, made, body.why)} if body.why else answer


@router.get("/v1/context")
async def assemble_for(
    backend: BackendDep,
    searcher: SearcherDep,
    comparison: ComparisonDep,
    policies: PoliciesDep,
    org: OrgDep,
    later: BackgroundTasks,
    task: str,
    query: str = "",
    max_tokens: int = DEFAULT_TOKENS,
    parts: Annotated[str, Query(description="Names with commas between; all of them unless told")] = ",".join(PARTS),
    mode: str = "",
    focus: str = "",
    originals: Annotated[str, Query(description="Cards with commas between")] = "",
) -> dict[str, Any]:
    """The same without a body."""
    body = ContextBody(
        task=task, query=query, max_tokens=max_tokens, parts=_names(parts), mode=mode, focus=focus,
        originals=_names(originals),
    )  # fmt: skip
    return await assemble(body, backend, searcher, comparison, policies, org, later)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@router.get("/v1/context/{context:name}")
async def again(
    context: str,
    backend: BackendDep,
    org: OrgDep,
    task: Annotated[str, Query(description="Its task, where the id does not name it")] = "",
) -> dict[str, Any]:
    """A context that was handed out before, byte for byte, from the log alone; 409 where that cannot be."""
    return _document(await make_again(backend, org, context, task or task_of(context)))


def _document(made: Made) -> dict[str, Any]:
    whole = made.assembled
    return {
        "context": made.context,
        "text": whole.text,
        "tokens": whole.tokens,
        "parts": [part._asdict() for part in whole.parts],
        "cards": list(whole.told),
        "left_out": list(whole.left_out),
        "memories": [{"memory": one.memory, "scope": one.scope} for one in whole.memories],
        "now": written(made.now),
        "digest": whole.digest,
    }
