"""``/v1/cards``: what later decisions depend on, and the way back to the originals."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from events.event import Position
from events.keys import task_key
from projections.queries import cards
from services.api.deps import After, BackendDep, OrgDep
from services.api.listings import event_at
from services.api.paging import Page, PageParam
from services.api.problems import Problem
from services.api.reading import missing, read
from services.composition import Backend

router = APIRouter(tags=["cards"])
CARDS = "memory_cards"
Status = Annotated[str, Query(description="active, superseded, invalidated; empty for all")]


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
    """One card, with everything that used it."""
    found = await read(backend, CARDS, partial(cards.card_document, org=org, card=card), org=org, after=after)
    if found.value is None:
        raise missing(found, "no_card", f"there is no card {card!r}")
    return {**found.value, "read": found.note}


@router.get("/v1/cards/{card:name}/raw")
async def raw(card: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """The original event that a card was made from, as it was published."""
    found = await read(backend, CARDS, partial(cards.card_document, org=org, card=card), org=org)
    if found.value is None:
        raise missing(found, "no_card", f"there is no card {card!r}")
    original = found.value["original"]
    position = Position.parse(original["position"])
    event = await backend.db.read(lambda conn: event_at(conn, org, original["partition"], position))
    if event is None:
        raise Problem(404, "no_event", f"the original of card {card!r} is not in the archive")
    return event


async def _of_task(backend: Backend, org: str, task: str, status: str, page: Page, after: str | None) -> dict[str, Any]:
    offset = page.offset
    work = partial(cards.cards_of_task, org=org, task=task, status=status, limit=page.limit + 1, offset=offset)
    found = await read(backend, CARDS, work, org=org, key=task_key(task), after=after)
    more = [offset + page.limit] if len(found.value) > page.limit else None
    return {**page.answer(found.value[: page.limit], more), "read": found.note}
