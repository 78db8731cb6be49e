"""``/v1/deadletters``: events that no fold could take, and what people do about them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from events.codec import to_cloudevent
from events.errors import Transient
from events.event import Position
from projections import generations
from projections.engine import dead_letters
from projections.engine.fold import DeadLetter
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from services.api.deps import BackendDep, OrgDep
from services.api.paging import PageParam
from services.api.problems import Problem
from services.composition import Backend

router = APIRouter(tags=["dead letters"])
_MOST = 100_000


@router.get("/v1/deadletters")
async def list_(
    backend: BackendDep,
    org: OrgDep,
    page: PageParam,
    projection: Annotated[str | None, Query(description="Of this projection alone")] = None,
    waiting: Annotated[bool, Query(description="Also those that only wait for an earlier one of their key")] = True,
) -> dict[str, Any]:
    """Dead letters of the active generations, by projection and position."""
    items: list[dict[str, Any]] = []
    for name in [projection] if projection else sorted(backend.projections):
        letters = await _letters(backend, name, org, waiting=waiting)
        items += [_document(name, letter) for letter in letters]
    return page.slice(items)


@router.get("/v1/deadletters/{id:name}")
async def show(id: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """One dead letter, with its traceback and its event."""
    name, letter = await _find(backend, org, id)
    before = Position(letter.position.epoch, letter.position.n - 1)
    archived = await backend.archive.read(letter.partition, before, 1)
    events = [one.event() for one in archived if one.position == letter.position]
    shown = to_cloudevent(events[0]) if events and events[0].org == org else None
    return {**_document(name, letter), "traceback": letter.traceback, "event": shown}


@router.post("/v1/deadletters/{id:name}/retry")
async def retry(id: str, backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """Fold all dead letters of this one's key again, in order."""
    name, letter = await _find(backend, org, id)
    retried = await asyncio.to_thread(partial(_retry, backend, name, letter))
    left = [_document(name, one) for one in retried.left]
    return {"id": id, "state": "failed" if left else "folded", "folded": retried.folded, "left": left}


@router.post("/v1/deadletters/{id:name}/discard")
async def discard(
    id: str,
    backend: BackendDep,
    org: OrgDep,
    reason: Annotated[str, Body(embed=True)] = "",
    by: Annotated[str, Body(embed=True)] = "",
) -> dict[str, Any]:
    """Leave the event out for good. Recorded as an event, so that every rebuild agrees."""
    name, letter = await _find(backend, org, id)
    raw = dead_letters.discarding(letter, name, by=by, reason=reason)
    outcomes = await backend.publisher.publish([raw], org=org, source="deadletters")
    if outcomes[0].status not in ("stored", "duplicate"):
        raise Problem(409, outcomes[0].code or outcomes[0].status, outcomes[0].message)
    return {"id": id, "state": "discarded", "token": outcomes[0].token}


async def _letters(backend: Backend, projection: str, org: str, *, waiting: bool = True) -> list[DeadLetter]:
    list_letters = partial(dead_letters.list_letters, org=org, waiting=waiting, limit=_MOST)
    return (await backend.read_models.read(projection, list_letters)).value


async def _find(backend: Backend, org: str, id: str) -> tuple[str, DeadLetter]:
    projection = id.partition(":")[0]
    if projection in backend.projections:
        for letter in await _letters(backend, projection, org):
            if _id(projection, letter) == id:
                return projection, letter
    raise Problem(404, "no_dead_letter", f"there is no dead letter {id!r}: see `refold deadletters list`")


def _retry(backend: Backend, name: str, letter: DeadLetter) -> dead_letters.Retried:
    generation = backend.db.read_now(lambda conn: generations.active(conn, name))
    if generation is None:
        raise Transient(f"{name} has no generation yet")
    db = backend.stores.generation(generation.name)
    try:
        store = GenerationStore(backend.projections[name], db)
        return dead_letters.retry(store, ArchiveSource(backend.db), (letter.org, letter.key))
    finally:
        db.close()


def _id(projection: str, letter: DeadLetter) -> str:
    return f"{projection}:{letter.partition}:{letter.position}"


def _document(projection: str, letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": _id(projection, letter),
        "projection": projection,
        "key": letter.key,
        "event_id": letter.event_id,
        "type": letter.type,
        "cause": letter.cause,
        "error": letter.error,
        "partition": letter.partition,
        "position": str(letter.position),
    }
