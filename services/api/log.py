"""``/v1/log`` and ``/v1/refused``: what the archive holds, and what was not let in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, exists, select

from events.archive.queries import count_events, read_epochs, read_watermarks
from events.archive.refusals import KeptRefusal, read_refusals
from events.archive.schema import refused_events
from events.event import Position
from events.tokens import write_token
from services.api.deps import BackendDep, OrgDep
from services.api.listings import rfc3339
from services.api.paging import PageParam

router = APIRouter(tags=["log"])


@router.get("/v1/log")
async def log(backend: BackendDep, org: OrgDep) -> dict[str, Any]:
    """How many events the archive holds, its watermark in each partition, and a token to read after all of it."""

    def work(conn: Connection) -> dict[str, Any]:
        marks = read_watermarks(conn)
        refused = select(exists().where(refused_events.c.org == org))
        return {
            "events": count_events(conn),
            "partitions": backend.partitions,
            "watermarks": {str(partition): str(position) for partition, position in sorted(marks.items())},
            "token": write_token(_last_positions(marks, read_epochs(conn))),
            "has_refused": bool(conn.execute(refused).scalar()),
        }

    return await backend.db.read(work)


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
