"""What was imported into a scope, read from the log: the reports, with the notes and settlements that were kept.

They are few and asked for seldom, so no read model holds them; what is erased from the log is gone from here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection

from events.archive.queries import read_key_type
from events.types.system import PackImported
from projections.bounds import canonical
from services.reactors.reactor import read_recorded

_REPORT = ("pack", "digest", "counts", "done", "refused", "confidence", "origin")
_KEPT = ("notes", "settlements")


def imports_of(conn: Connection, org: str, scope: str) -> list[dict[str, Any]]:
    """The imports of a scope, in order. ``event_id`` is the report's."""
    reports = []
    kept: dict[str, dict[str, dict[str, Any]]] = {}  # digest -> sort -> documents, by their text
    for event_id, time, payload in _recorded(conn, org, scope):
        if payload.counts:
            told = msgspec.to_builtins(payload)
            said = {name: told[name] for name in _REPORT if name in told}
            reports.append({**said, "scope": scope, "time": time, "event_id": event_id})
            continue
        sorts = kept.setdefault(payload.digest, {})
        for sort in _KEPT:
            # with another factor the same ones come again
            sorts.setdefault(sort, {}).update((canonical(one), one) for one in getattr(payload, sort))
    return [
        {**report, **{sort: list(kept.get(report.get("digest", ""), {}).get(sort, {}).values()) for sort in _KEPT}}
        for report in reports
    ]


def _recorded(conn: Connection, org: str, scope: str) -> Iterator[tuple[str, str, PackImported]]:
    for archived in read_key_type(conn, org, scope, "pack.imported"):
        recorded = read_recorded(archived)
        if recorded is not None and isinstance(recorded.payload, PackImported):
            yield recorded.event.id, recorded.event.time, recorded.payload
