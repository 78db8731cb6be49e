"""A small in-memory engine for tests of folds: raw events through the door, then through a projection.

It does what the engine promises and nothing more: positions are dense, each position is applied once, a key owns its
rows, a row put is a row that the store would give back, ``names`` is called for a whole batch before its first
``apply``. Rows that ``apply`` asks for beyond its names are counted, for tests that care.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from events.door import admit
from events.event import Position, Recorded
from events.registry import decode_payload
from projections.engine.shapes import Shape
from projections.projection import Drop, Projection, Put, Row

START_TIME = "2026-03-01T10:00:00Z"

Rows = dict[tuple[str, str, str, tuple[Any, ...]], Row]
"""(org, key, table, primary key) -> row."""


def event(type_: str, /, n: int = 0, **fields: Any) -> dict[str, Any]:
    """One raw event: envelope members by name, everything else becomes data. ``n`` makes id and time."""
    envelope = ("id", "source", "time", "org", "agent", "user", "session", "task", "run", "seq", "schemaversion")
    raw: dict[str, Any] = {"type": type_, "id": f"e{n}", "time": f"2026-03-01T10:{n // 60 % 60:02}:{n % 60:02}Z"}
    raw.update({name: fields.pop(name) for name in envelope if name in fields})
    raw["data"] = fields.pop("data", fields)
    return raw


def record(raws: Iterable[Mapping[str, Any]], *, epoch: int = 1, first: int = 0) -> list[Recorded]:
    """Raw events as a fold sees them, at dense positions of one partition."""
    events = [admit(raw) for raw in raws]
    return [Recorded(0, Position(epoch, first + i), e, decode_payload(e)) for i, e in enumerate(events)]


class Folded:
    """Rows of a projection after some events; ``fold`` may be called again to go on."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.rows: Rows = {}
        self.unnamed = 0
        self._shapes = {str(table.name): Shape(table, strict=True) for table in projection.tables}
        self._pks = {
            table.name: tuple(c.name for c in table.primary_key if c.name not in ("org", "key"))
            for table in projection.tables
        }

    def fold(self, recorded: Sequence[Recorded], *, batch: int = 100) -> Folded:
        """Fold in batches of this size."""
        mine = [r for r in recorded if r.event.type in self.projection.handles]
        for start in range(0, len(mine), batch):
            chunk = mine[start : start + batch]
            named = [set(self.projection.names(r)) for r in chunk]
            for r, refs in zip(chunk, named, strict=True):
                self._apply(r, refs)
        return self

    def _apply(self, r: Recorded, refs: set[Any]) -> None:
        owner = (r.event.org, self.projection.key(r))
        runner = self

        class View:
            def get(self, table: str, *pk: Any) -> Row | None:
                runner.unnamed += (table, pk) not in refs
                return runner.rows.get((*owner, table, pk))

        for change in self.projection.apply(r, View()):
            match change:
                case Put(table, row):
                    assert self._shapes[table].checked(row) == row, "not what the store would give back"
                    pk = tuple(row[name] for name in self._pks[table])
                    self.rows[(*owner, table, pk)] = row
                case Drop(table, pk):
                    self.rows.pop((*owner, table, pk), None)

    def table(self, name: str, *, key: str | None = None, org: str = "default") -> list[dict[str, Any]]:
        """Rows of one table, in key order."""
        found = [(ref, row) for ref, row in self.rows.items() if ref[2] == name and ref[0] == org]
        return [dict(row) for ref, row in sorted(found, key=lambda f: repr(f[0])) if key in (None, ref[1])]

    def one(self, name: str, **where: Any) -> dict[str, Any]:
        """The single row of a table that has these values."""
        found = [row for row in self.table(name) if all(row[k] == v for k, v in where.items())]
        assert len(found) == 1, f"{len(found)} rows of {name} with {where}"
        return found[0]

    def dump(self, *, without: Iterable[str] = ()) -> bytes:
        """All rows as canonical JSON lines: equal rows, equal bytes."""
        skip = set(without)
        lines = [
            orjson.dumps([*ref, {k: v for k, v in row.items() if k not in skip}], option=orjson.OPT_SORT_KEYS)
            for ref, row in self.rows.items()
        ]
        return b"\n".join(sorted(lines))

    def store(self, connection: Any) -> None:
        """Write the rows into the projection's tables on a connection, as the engine would."""
        tables = {table.name: table for table in self.projection.tables}
        for (org, key, name, _), row in self.rows.items():
            connection.execute(tables[name].insert().values(org=org, key=key, **copy.deepcopy(dict(row))))


def fold(projection: Projection, raws: Iterable[Mapping[str, Any]], *, batch: int = 100) -> Folded:
    """Raw events through the door and the projection."""
    return Folded(projection).fold(record(raws), batch=batch)
