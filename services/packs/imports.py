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
from services.reactors.reactor import read_recorded

_REPORT = ("pack", "digest", "counts", "done", "refused", "confidence", "origin")


def imports_of(conn: Connection, org: str, scope: str) -> list[dict[str, Any]]:
    """The imports of a scope, in order. ``event_id`` is the report's."""
    reports = []
    kept: dict[str, dict[str, list[Any]]] = {}
    for event_id, time, payload in _recorded(conn, org, scope):
        if payload.counts:
            told = msgspec.to_builtins(payload)
            said = {name: told[name] for name in _REPORT if name in told}
            reports.append({**said, "scope": scope, "time": time, "event_id": event_id})
            continue
        sorts = kept.setdefault(payload.digest, {"notes": [], "settlements": []})
        for sort, documents in sorts.items():
            # with another factor the same ones come again
            documents += [one for one in getattr(payload, sort) if one not in documents]
    nothing: dict[str, list[Any]] = {"notes": [], "settlements": []}
    return [{**report, **kept.get(report["digest"], nothing)} for report in reports]


def _recorded(conn: Connection, org: str, scope: str) -> Iterator[tuple[str, str, PackImported]]:
    for archived in read_key_type(conn, org, scope, "pack.imported"):
        recorded = read_recorded(archived)
        if recorded is not None and isinstance(recorded.payload, PackImported):
            yield recorded.event.id, recorded.event.time, recorded.payload
