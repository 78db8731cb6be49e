"""``/v1/cards/search``: cards by what they say, not by where they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import orjson
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from projections.bounds import canonical, digest
from projections.retrieval.query import ACTIVE, MAX_TOP_K, TOP_K, CardQuery, Scope
from services.api.body import read_body
from services.api.deps import After, OrgDep
from services.api.paging import decode_cursor, encode_cursor
from services.api.problems import Problem
from services.searching.search import Searcher

router = APIRouter(tags=["cards"])

Status = Literal["active", "superseded", "invalidated", "expired", "any"]


async def _searcher(request: Request) -> Searcher:
    return cast(Searcher, request.app.state.searcher)


SearcherDep = Annotated[Searcher, Depends(_searcher)]


class SearchBody(BaseModel):
    """A search; see the guide for filters and signals."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Annotated[str, Field(description="Words in any language, ids, dates; nothing in it is an operator")] = ""
    user: Annotated[str, Field(description="Cards of this user alone")] = ""
    agent: Annotated[str, Field(description="Cards of this agent alone")] = ""
    session: Annotated[str, Field(description="Cards of this session alone")] = ""
    task: Annotated[str, Field(description="Cards of this task alone")] = ""
    filter: Annotated[
        dict[str, Any], Field(description='Like {"tool": "search", "or": [{"value": {"gte": 3}}, ...]}')
    ] = {}
    status: Annotated[Status, Field(description="Of this status; `any` for all")] = ACTIVE
    as_of: Annotated[str, Field(description="Only what was known at this moment, as it stood then (RFC 3339)")] = ""
    focus: Annotated[
        str, Field(description="The decision that this is for: id of a call, decision or card, or words")
    ] = ""
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K, description="Cards a page")] = TOP_K
    threshold: Annotated[float, Field(ge=0.0, le=1.0, description="Least relevance")] = 0.0
    max_tokens: Annotated[int | None, Field(ge=1, description="Tokens that the cards' summaries may have together")] = (
        None
    )
    explain: Annotated[bool, Field(description="What each signal adds to the score")] = False
    cursor: Annotated[str | None, Field(description="`next_cursor` of the page before")] = None
    after: Annotated[
        str | None, Field(description="Position token of a publish: the answer holds what that stored")
    ] = None

    @field_validator("user", "agent", "session", "task")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if "\0" in name:
            raise ValueError("no name has a NUL in it")
        return name


async def _body(request: Request) -> SearchBody:
    raw = await read_body(request, request.app.state.max_body_bytes)
    try:
        return SearchBody.model_validate_json(raw or b"{}")
    except ValidationError as error:
        raise _wrong(error) from error


def _wrong(error: ValidationError) -> Problem:
    wrong = [f"`{'.'.join(map(str, one['loc'])) or 'body'}`: {one['msg']}" for one in error.errors()]
    return Problem(422, "bad_parameter", "; ".join(wrong))


_SCHEMA = {"requestBody": {"content": {"application/json": {"schema": SearchBody.model_json_schema()}}}}


@router.post("/v1/cards/search", openapi_extra=_SCHEMA)
async def search(body: Annotated[SearchBody, Depends(_body)], searcher: SearcherDep, org: OrgDep) -> dict[str, Any]:
    """The cards of a scope that fit a query best, with the reason for their order where it is asked for."""
    return await _search(body, searcher, org)


@router.get("/v1/cards/search")
async def search_by_words(
    searcher: SearcherDep,
    org: OrgDep,
    q: Annotated[str, Query(description="Words in any language, ids, dates")] = "",
    user: str = "",
    agent: str = "",
    session: str = "",
    task: str = "",
    status: Annotated[Status, Query(description="Of this status; `any` for all")] = ACTIVE,
    filter: Annotated[str, Query(description="A filter as JSON")] = "",
    as_of: Annotated[str, Query(description="As it stood at this moment (RFC 3339)")] = "",
    focus: str = "",
    top_k: Annotated[int, Query(ge=1, le=MAX_TOP_K)] = TOP_K,
    threshold: Annotated[float, Query(ge=0.0, le=1.0)] = 0.0,
    explain: bool = False,
    cursor: str | None = None,
    after: After = None,
) -> dict[str, Any]:
    """The same without a body."""
    try:
        body = SearchBody(
            query=q, user=user, agent=agent, session=session, task=task, status=status, filter=_tree(filter),
            as_of=as_of, focus=focus, top_k=top_k, threshold=threshold, explain=explain, cursor=cursor, after=after,
        )  # fmt: skip
    except ValidationError as error:
        raise _wrong(error) from error
    return await _search(body, searcher, org)


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError as error:
        raise Problem(422, "bad_filter", f"`filter` is no JSON: {error}", field="filter") from error
    if not isinstance(tree, dict):
        raise Problem(422, "bad_filter", "`filter` is no JSON object", field="filter")
    return tree


async def _search(body: SearchBody, searcher: Searcher, org: str) -> dict[str, Any]:
    asked = _digest(body)
    offset = _offset(body.cursor, asked) if body.cursor else 0
    query = CardQuery(
        text=body.query, scope=Scope(org, body.user, body.agent, body.session, body.task), filter=body.filter,
        status=body.status, as_of=body.as_of, focus=body.focus, top_k=body.top_k, offset=offset,
        threshold=body.threshold, max_tokens=body.max_tokens, explain=body.explain,
    )  # fmt: skip
    found = await searcher.search(query, body.after)
    following = offset + len(found.items)
    return {
        "items": found.items,
        "next_cursor": encode_cursor(["desc", following, asked]) if found.more and found.items else None,
        "total": found.total,
        "embedding": {"model": found.model, "why_not": found.why},
        "read": found.note,
    }


def _digest(body: SearchBody) -> str:
    """What a page must have in common with the one before it."""
    return digest(canonical(body.model_dump(exclude={"cursor", "after", "top_k", "explain", "max_tokens"})))[:16]


def _offset(cursor: str, asked: str) -> int:
    place = decode_cursor(cursor)
    if len(place) != 3 or place[2] != asked or not isinstance(place[1], int) or place[1] < 0:
        raise Problem(422, "bad_cursor", "`cursor` is of another search: start without it")
    return place[1]
