"""``/v1/log``, ``/v1/refused``, ``/v1/reactors``: what the archive holds, what was not let in, who follows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, exists, select

from events.archive.queries import count_events, read_epochs, read_watermarks
from events.archive.refusals import KeptRefusal, read_refusals
from events.archive.schema import refused_events
from events.archive.store import log_id
from events.archive.unknown_types import UnknownType, read_unknown
from events.event import Position
from events.tokens import write_token
from services.api.deps import BackendDep, OrgDep
from services.api.listings import rfc3339
from services.api.paging import MAX_LIMIT, PageParam
from services.overview import read_log_state
from services.reactors.registry import REACTORS
from services.reactors.status import read_reactors

router = APIRouter(tags=["log"])


@router.get("/v1/log")
async def log(backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """How many events the archive holds, its watermark in each partition, and a token to read after all of it.

    `lag_events` are entries in Redis that are not archived yet; null while Redis does not answer, or has lost something
    that recovery must look at first. `unknown_types` counts event types of this organisation that no read model knows.
    """

    def work(conn: Connection) -> tuple[dict[str, Any], dict[int, Position]]:
        marks = read_watermarks(conn)
        refused = select(exists().where(refused_events.c.org == org))
        return {
            "events": count_events(conn),
            "partitions": backend.partitions,
            "watermarks": {str(partition): str(position) for partition, position in sorted(marks.items())},
            "token": write_token(_last_positions(marks, read_epochs(conn)), log_id(conn)),
            "has_refused": bool(conn.execute(refused).scalar()),
            "unknown_types": len(read_unknown(conn, MAX_LIMIT, org)),
        }, marks

    document, marks = await backend.db.read(work)
    state = await read_log_state(backend, marks)
    return {**document, "lag_events": None if state is None else state.waiting}


@router.get("/v1/log/unknown-types")
async def unknown_types(backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """Event types that this version does not know: stored, counted, ignored by read models. The most frequent first."""
    found = await backend.db.read(lambda conn: read_unknown(conn, page.offset + page.limit + 1, org))
    return page.slice([_unknown(one) for one in found])


def _unknown(one: UnknownType) -> dict[str, Any]:
    return {"type": one.type, "events": one.events, "first": rfc3339(one.first_ms), "last": rfc3339(one.last_ms)}


@router.get("/v1/reactors")
async def reactors(backend: BackendDep) -> dict[str, Any]:
    """The reactors: how many events each has yet to go through, and how many processes run it."""
    found = await backend.db.read(lambda conn: read_reactors(conn, REACTORS))
    return {"items": [{**one._asdict(), "lag_s": round(one.lag_s, 3)} for one in found], "next_cursor": None}


def _last_positions(
    marks: Mapping[int, Position], epochs: Mapping[int, Mapping[int, int | None]]
) -> Iterator[tuple[int, Position]]:
    """The last entry of each partition that has any: while an epoch is empty, as after a restart, an earlier one's."""
    for partition, mark in marks.items():
        ended = (Position(epoch, end) for epoch, end in epochs.get(partition, {}).items() if end is not None)
        last = mark if mark.n >= 0 else max((position for position in ended if position.n >= 0), default=None)
        if last is not None:
            yield partition, last


@router.get("/v1/refused")
async def refused(backend: BackendDep, org: OrgDep, page: PageParam) -> dict[str, Any]:
    """Events that were refused or conflicted, the newest first, with the reason and the event as it came."""
    before = page.offset or None
    found = await backend.db.read(lambda conn: read_refusals(conn, org, before=before, limit=page.limit + 1))
    shown = found[: page.limit]
    return page.answer([_document(one) for one in shown], [shown[-1].number] if len(found) > page.limit else None)


def _document(kept: KeptRefusal) -> dict[str, Any]:
    document = kept.refusal._asdict()
    received = rfc3339(document.pop("received_ms"))
    return {"number": kept.number, "received": received, **document}
