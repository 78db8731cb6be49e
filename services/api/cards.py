"""``/v1/cards``: what later decisions depend on, and the way back to the originals."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Body, Query

from events.event import Position
from events.keys import task_key
from projections.queries import cards
from projections.queries.card_graph import MAX_DEPTH, card_graph
from services.api.deps import After, BackendDep, OrgDep
from services.api.listings import event_at
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.reading import Found, missing, now, read
from services.composition import Backend

router = APIRouter(tags=["cards"])
CARDS = "memory_cards"
Status = Annotated[str, Query(description="active, superseded, invalidated, expired; empty for all")]
Reason = Annotated[str, Body(embed=True, description="Why; it is recorded")]
By = Annotated[str, Body(embed=True, description="Who says so; it is recorded")]


@router.get("/v1/cards")
async def list_(
    backend: BackendDep, org: OrgDep, page: PageParam, task: str, status: Status = "active", after: After = None
) -> dict[str, Any]:
    """Cards of a task, the most valuable first."""
    return await _of_task(backend, org, task, status, page, after)


@router.get("/v1/tasks/{task:name}/cards")
async def of_task(
    task: str, backend: BackendDep, org: OrgDep, page: PageParam, status: Status = "active", after: After = None
) -> dict[str, Any]:
    """Cards of a task, the most valuable first."""
    return await _of_task(backend, org, task, status, page, after)


@router.get("/v1/cards/{card:name}")
async def show(card: str, backend: BackendDep, org: OrgDep, after: After = None) -> dict[str, Any]:
    """One card: why it exists, its facts, everything that used it."""
    found = await _found(backend, org, card, after)
    return {**found.value, "read": found.note}


@router.get("/v1/cards/{card:name}/graph")
async def graph(
    card: str,
    backend: BackendDep,
    org: OrgDep,
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="Links away")] = 2,
    after: After = None,
) -> dict[str, Any]:
    """The cards around one: what it was made from, what used it, what took its place."""
    work = partial(card_graph, org=org, card=card, depth=depth)
    found = await read(backend, CARDS, work, org=org, after=after)
    if found.value is None:
        raise missing(found, "no_card", f"there is no card {card!r}")
    return {**found.value, "read": found.note}


@router.get("/v1/cards/{card:name}/raw")
async def raw(card: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """The original event that a card was made from, as it was published."""
    original = (await _found(backend, org, card)).value["original"]
    position = Position.parse(original["position"])
    event = await backend.db.read(lambda conn: event_at(conn, org, original["partition"], position))
    if event is None:
        raise Problem(404, "no_event", f"the original of card {card!r} is not in the archive")
    return event


@router.post("/v1/cards/{card:name}/invalidate")
async def invalidate(card: str, backend: BackendDep, org: OrgDep, reason: Reason = "", by: By = "") -> dict[str, Any]:
    """Say that a card does not hold. Recorded as an event, so that every rebuild agrees; `restore` takes it back."""
    return await _judge(backend, org, card, "card.invalidated", reason, by)


@router.post("/v1/cards/{card:name}/restore")
async def restore(card: str, backend: BackendDep, org: OrgDep, reason: Reason = "", by: By = "") -> dict[str, Any]:
    """Say that an invalidated, superseded or expired card holds again. Recorded as an event."""
    return await _judge(backend, org, card, "card.restored", reason, by)


async def _judge(backend: Backend, org: str, card: str, type_: str, reason: str, by: str) -> dict[str, Any]:
    task = (await _found(backend, org, card)).value.get("task", "")
    raw_event = {
        "id": f"{type_}-{uuid4()}",
        "type": type_,
        "task": task,
        "data": {"card": card, "reason": reason, "by": by},
    }
    outcome = (await backend.publisher.publish([raw_event], org=org, source="cards"))[0]
    if outcome.status not in ("stored", "duplicate"):
        raise Problem(409, outcome.code or outcome.status, outcome.message)
    return {"card": card, "event": outcome.id, "token": outcome.token}


async def _found(backend: Backend, org: str, card: str, after: str | None = None) -> Found:
    work = partial(cards.card_document, org=org, card=card, now=now())
    found = await read(backend, CARDS, work, org=org, after=after)
    if found.value is None:
        raise missing(found, "no_card", f"there is no card {card!r}")
    return found


async def _of_task(backend: Backend, org: str, task: str, status: str, page: Page, after: str | None) -> dict[str, Any]:
    offset = page.offset
    work = partial(
        cards.cards_of_task, org=org, task=task, status=status, limit=page.limit + 1, offset=offset, now=now()
    )
    found = await read(backend, CARDS, work, org=org, key=task_key(task), after=after)
    more = [offset + page.limit] if len(found.value) > page.limit else None
    return {**page.answer(found.value[: page.limit], more), "read": found.note}
