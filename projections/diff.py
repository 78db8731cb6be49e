"""The rows in which two generations of a read model differ, table by table; each side on a snapshot of its own.

Both sides are read in the order of their keys and merged, so that memory does not grow with them. What their tables
look like is asked of the stores, not of any code: the two may have been made by different versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import Column, ColumnElement, Connection, MetaData, Table, Text, collate, func, select

from projections.engine import tables as engine_tables
from projections.projection import Json, Projection
from projections.scope import Scope

FIRST = 5
"""Rows of a table that are shown field by field."""

_PAGE = 2000
_DEAD_LETTERS = str(engine_tables.dead_letters.name)
_TOLD_ONLY = ("error", "traceback")
"""Of a dead letter: texts that belong to the code's place, so that they are shown, not compared."""

_Key = tuple[Any, ...]


@dataclass(frozen=True)
class Retyped:
    """A column that both sides have, of another type; it is not compared."""

    column: str
    live: str
    new: str


@dataclass(frozen=True)
class FieldDiff:
    """One column of a row on both sides; None also where a side has no such row."""

    column: str
    live: Any
    new: Any


@dataclass(frozen=True)
class RowDiff:
    """One row that differs. ``change``: added, changed, removed."""

    table: str
    key: tuple[Any, ...]
    change: str
    fields: tuple[FieldDiff, ...]


@dataclass
class TableDiff:
    """One table. ``state``: compared; new (the live generation lacks it); gone; rekeyed (its primary key differs).

    ``added``, ``changed`` and ``removed`` count keys, on the columns that both sides have with one type.
    """

    table: str
    state: str = "compared"
    live_rows: int = 0
    new_rows: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    columns_new: list[str] = field(default_factory=list)
    columns_gone: list[str] = field(default_factory=list)
    columns_retyped: list[Retyped] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Whether a row or the shape of the table would be another one."""
        shape = self.columns_new or self.columns_gone or self.columns_retyped or self.state != "compared"
        return bool(shape or self.added or self.changed or self.removed)


@dataclass(frozen=True)
class Diff:
    """All tables of a read model, its dead letters among them, and the first rows of each that differ."""

    tables: tuple[TableDiff, ...]
    first: tuple[RowDiff, ...]

    @property
    def differs(self) -> bool:
        """Whether anything would be another one."""
        return any(table.differs for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"tables": [asdict(table) for table in self.tables], "first": [asdict(row) for row in self.first]}


def compare(live: Connection, new: Connection, projection: Projection, scope: Scope, first: int = FIRST) -> Diff:
    """Compare two generations within a scope. ``projection`` is the code that made ``new``; it tells what is JSON."""
    left, right = _tables(live), _tables(new)
    diffs: list[TableDiff] = []
    rows: list[RowDiff] = []
    for name in sorted(left.keys() | right.keys()):
        sides = _Sides(live, new, left.get(name), right.get(name), scope, _jsons(projection, name))
        diffs.append(sides.compare(name, first))
        rows += [sides.row(name, key) for key in sides.first]
    return Diff(tuple(diffs), tuple(rows))


class _Sides:
    """One table on both sides."""

    def __init__(
        self,
        live: Connection,
        new: Connection,
        left: Table | None,
        right: Table | None,
        scope: Scope,
        jsons: frozenset[str],
    ) -> None:
        self._live, self._new = live, new
        self._left, self._right = left, right
        self._scope = scope
        self._jsons = jsons
        self._compared: list[str] = []
        self.first: list[_Key] = []

    def compare(self, name: str, first: int) -> TableDiff:
        left, right, diff = self._left, self._right, TableDiff(name)
        if left is None or right is None or _key(left) != _key(right):
            diff.state = "new" if left is None else "gone" if right is None else "rekeyed"
            diff.live_rows, diff.new_rows = self._count(self._live, left), self._count(self._new, right)
            diff.added, diff.removed = (diff.new_rows, diff.live_rows) if diff.state != "rekeyed" else (0, 0)
            return diff
        types = [{column.name: str(column.type) for column in table.columns} for table in (left, right)]
        both = [column for column in types[0] if column in types[1]]
        diff.columns_gone = [column for column in types[0] if column not in types[1]]
        diff.columns_new = [column for column in types[1] if column not in types[0]]
        diff.columns_retyped = [Retyped(c, types[0][c], types[1][c]) for c in both if types[0][c] != types[1][c]]
        told_only = _TOLD_ONLY if name == _DEAD_LETTERS else ()
        self._compared = [c for c in both if types[0][c] == types[1][c] and c not in told_only]
        self._merge(diff, first)
        return diff

    def _merge(self, diff: TableDiff, first: int) -> None:
        for key, old, new in _merged(self._rows(self._live, self._left), self._rows(self._new, self._right)):
            diff.live_rows += old is not None
            diff.new_rows += new is not None
            if old == new:
                continue
            diff.added += old is None
            diff.removed += new is None
            diff.changed += old is not None and new is not None
            if len(self.first) < first:
                self.first.append(key)

    def row(self, name: str, key: _Key) -> RowDiff:
        """One row that differs, field by field: all of it where one side lacks it."""
        old, new = self._row(self._live, self._left, key), self._row(self._new, self._right, key)
        if old is not None and new is not None:
            fields = [FieldDiff(c, old[c], new[c]) for c in self._compared if old[c] != new[c]]
            return RowDiff(name, key, "changed", tuple(fields))
        there = {**(old or {}), **(new or {})}
        fields = [
            FieldDiff(column, (old or {}).get(column), (new or {}).get(column))
            for column, value in there.items()
            if value is not None and column not in ("traceback", *_names(self._left))
        ]
        return RowDiff(name, key, "added" if old is None else "removed", tuple(fields))

    def _rows(self, conn: Connection, table: Table | None) -> Iterator[tuple[_Key, tuple[Any, ...]]]:
        assert table is not None
        names = _names(table)
        query = (
            select(*(table.c[name] for name in (*names, *self._compared)))
            .where(self._scope.condition(table))
            .order_by(*(_ordered(conn, table.c[name]) for name in names))
            .execution_options(yield_per=_PAGE)
        )
        for row in conn.execute(query):
            yield tuple(row[: len(names)]), tuple(row[len(names) :])

    def _row(self, conn: Connection, table: Table | None, key: _Key) -> Mapping[str, Any] | None:
        assert table is not None
        query = select(table)
        for name, value in zip(_names(table), key, strict=True):
            query = query.where(table.c[name] == value)
        row = conn.execute(query).mappings().first()
        return None if row is None else {str(name): self._shown(str(name), value) for name, value in row.items()}

    def _shown(self, column: str, value: Any) -> Any:
        return orjson.loads(value) if column in self._jsons and isinstance(value, str) else value

    def _count(self, conn: Connection, table: Table | None) -> int:
        if table is None:
            return 0
        query = select(func.count()).select_from(table).where(self._scope.condition(table))
        return int(conn.execute(query).scalar_one())


def _merged(
    left: Iterator[tuple[_Key, Any]], right: Iterator[tuple[_Key, Any]]
) -> Iterator[tuple[_Key, Any | None, Any | None]]:
    """Each key of two sorted sides, with what each side has there."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(left, None), next(right, None)


def _tables(conn: Connection) -> dict[str, Table]:
    """The tables of a generation as its store knows them, without what the engine keeps for itself."""
    metadata = MetaData()
    metadata.reflect(conn, resolve_fks=False)
    own = engine_tables.NAMES - {_DEAD_LETTERS}
    return {name: table for name, table in metadata.tables.items() if name not in own}


def _names(table: Table | None) -> Sequence[str]:
    return [] if table is None else [str(column.name) for column in table.primary_key.columns]


def _key(table: Table) -> list[tuple[str, str]]:
    return [(str(column.name), str(column.type)) for column in table.primary_key.columns]


def _ordered(conn: Connection, column: Column[Any]) -> ColumnElement[Any]:
    # as Python compares strings, whatever collation the database has
    return collate(column, "C") if conn.dialect.name == "postgresql" and isinstance(column.type, Text) else column


def _jsons(projection: Projection, name: str) -> frozenset[str]:
    columns = [column for table in projection.tables if table.name == name for column in table.columns]
    return frozenset(str(column.name) for column in columns if isinstance(column.type, Json))
