"""The rows in which two generations of a read model differ, table by table; each side on a snapshot of its own.

Both sides are read in the order of their keys and merged, so that memory does not grow with them. What their tables
look like is asked of the stores, since different versions may have made them; the code tells what was renamed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import Column, ColumnElement, Connection, MetaData, Table, Text, collate, func, select

from projections.engine import tables as engine_tables
from projections.projection import WAS, Json, Projection
from projections.rebuilding.scope import Scope

FIRST = 5
"""Rows of a table that are shown field by field."""

_PAGE = 2000
_DEAD_LETTERS = str(engine_tables.dead_letters.name)
_TOLD_ONLY = ("error", "traceback")
"""Of a dead letter: texts that belong to the code's place, so that they are shown, not compared."""

_Key = tuple[Any, ...]

Tables = dict[str, Table]
"""The tables of a generation by name."""


@dataclass(frozen=True)
class Retyped:
    """A column that both sides have, of another type; it is not compared."""

    column: str
    live: str
    new: str


@dataclass(frozen=True)
class Renamed:
    """A column that the live generation has under its former name."""

    column: str
    was: str


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

    ``was`` is the name of it in the live generation, where that is another one. ``added``, ``changed`` and ``removed``
    count keys, on the columns that both sides have with one type.
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
    columns_renamed: list[Renamed] = field(default_factory=list)
    was: str = ""

    @property
    def differs(self) -> bool:
        """Whether a row or the shape of the table would be another one."""
        columns = self.columns_new or self.columns_gone or self.columns_retyped or self.columns_renamed
        return bool(columns or self.was or self.state != "compared" or self.added or self.changed or self.removed)


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


def compare(
    live: Connection,
    new: Connection,
    projection: Projection,
    scope: Scope,
    first: int = FIRST,
    tables: tuple[Tables, Tables] | None = None,
) -> Diff:
    """Compare two generations within a scope. ``projection`` is the code that made ``new``.

    ``tables`` are those of both, for who cannot wait until they are looked up.
    """
    left, right = tables or (tables_of(live), tables_of(new))
    code = {str(table.name): table for table in projection.tables}
    was = {name: former for name, table in code.items() if name not in left and (former := _former(table, left))}
    diffs: list[TableDiff] = []
    rows: list[RowDiff] = []
    for name in sorted((left.keys() - set(was.values())) | right.keys()):
        old = left.get(was.get(name, name))
        sides = _Sides(
            None if old is None else _Side(live, old, code.get(name), scope),
            _Side(new, right[name], code.get(name), scope) if name in right else None,
        )
        diffs.append(sides.compare(TableDiff(name, was=was.get(name, "")), first))
        rows += [sides.row(name, key) for key in sides.first]
    return Diff(tuple(diffs), tuple(rows))


class _Side:
    """One table of one generation, its columns under the names that the code has for them."""

    def __init__(self, conn: Connection, table: Table, code: Table | None, scope: Scope) -> None:
        self._conn, self._scope = conn, scope
        has = table.columns.keys()
        columns = [] if code is None else list(code.columns)
        self.renamed = {str(c.name): was for c in columns if c.name not in has and (was := _former(c, has))}
        now = {was: name for name, was in self.renamed.items()}
        self._jsons = frozenset(str(column.name) for column in columns if isinstance(column.type, Json))
        self.columns = {now.get(str(column.name), str(column.name)): column for column in table.columns}
        self.types = {name: str(column.type) for name, column in self.columns.items()}
        self.key = [now.get(str(column.name), str(column.name)) for column in table.primary_key.columns]
        self._table = table

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[_Key, tuple[Any, ...]]]:
        """Key and columns of each row, in the order of the keys."""
        query = (
            select(*(self.columns[name].label(f"c{index}") for index, name in enumerate((*self.key, *columns))))
            .where(self._scope.condition(self._table))
            .order_by(*(_ordered(self._conn, self.columns[name]) for name in self.key))
            .execution_options(yield_per=_PAGE)
        )
        count = len(self.key)
        for row in self._conn.execute(query):
            yield tuple(row[:count]), tuple(row[count:])

    def row(self, key: _Key) -> dict[str, Any] | None:
        """One row."""
        query = select(*self.columns.values())
        for name, value in zip(self.key, key, strict=True):
            query = query.where(self.columns[name] == value)
        found = self._conn.execute(query).first()
        return (
            None if found is None else {n: self._shown(n, value) for n, value in zip(self.columns, found, strict=True)}
        )

    def count(self) -> int:
        """How many rows there are."""
        query = select(func.count()).select_from(self._table).where(self._scope.condition(self._table))
        return int(self._conn.execute(query).scalar_one())

    def _shown(self, column: str, value: Any) -> Any:
        return orjson.loads(value) if column in self._jsons and isinstance(value, str) else value


class _Sides:
    """One table on both sides, or on the one that has it. ``first`` are the keys of the first rows that differ."""

    def __init__(self, live: _Side | None, new: _Side | None) -> None:
        self._live, self._new = live, new
        self._compared: list[str] = []
        self.first: list[_Key] = []

    def compare(self, diff: TableDiff, first: int) -> TableDiff:
        """Fill in what differs."""
        live, new = self._live, self._new
        if live is None or new is None or _key_types(live) != _key_types(new):
            diff.state = "new" if live is None else "gone" if new is None else "rekeyed"
            diff.live_rows, diff.new_rows = live.count() if live else 0, new.count() if new else 0
            diff.added, diff.removed = (diff.new_rows, diff.live_rows) if diff.state != "rekeyed" else (0, 0)
            return diff
        was, then = live.types, new.types
        diff.columns_gone = [column for column in was if column not in then]
        diff.columns_new = [column for column in then if column not in was]
        both = [column for column in was if column in then]
        diff.columns_retyped = [Retyped(c, was[c], then[c]) for c in both if was[c] != then[c]]
        diff.columns_renamed = [Renamed(column, former) for column, former in live.renamed.items()]
        told_only = _TOLD_ONLY if diff.table == _DEAD_LETTERS else ()
        self._compared = [c for c in both if was[c] == then[c] and c not in told_only]
        for key, old, other in _merged(live.rows(self._compared), new.rows(self._compared)):
            self._count(diff, old, other)
            if old != other and len(self.first) < first:
                self.first.append(key)
        return diff

    def row(self, name: str, key: _Key) -> RowDiff:
        """One row that differs, field by field: all of it where one side lacks it."""
        assert self._live is not None
        assert self._new is not None
        old, new = self._live.row(key), self._new.row(key)
        if old is not None and new is not None:
            fields = [FieldDiff(c, old[c], new[c]) for c in self._compared if old[c] != new[c]]
            return RowDiff(name, key, "changed", tuple(fields))
        fields = [
            FieldDiff(column, (old or {}).get(column), (new or {}).get(column))
            for column, value in (old or new or {}).items()
            if value is not None and column not in ("traceback", *self._live.key)
        ]
        return RowDiff(name, key, "added" if old is None else "removed", tuple(fields))

    def _count(self, diff: TableDiff, old: object, new: object) -> None:
        diff.live_rows += old is not None
        diff.new_rows += new is not None
        diff.added += old is None
        diff.removed += new is None
        diff.changed += old is not None and new is not None and old != new


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


def tables_of(conn: Connection) -> Tables:
    """The tables of a generation as its store knows them, without what the engine keeps for itself."""
    metadata = MetaData()
    metadata.reflect(conn, resolve_fks=False)
    own = engine_tables.NAMES - {_DEAD_LETTERS}
    return {name: table for name, table in metadata.tables.items() if name not in own}


def _key_types(side: _Side) -> list[tuple[str, str]]:
    return [(name, side.types[name]) for name in side.key]


def _former(item: Table | Column[Any], there: Container[str]) -> str:
    """The newest of a table's or column's former names that is there, or nothing."""
    was = item.info.get(WAS, ())
    return next((name for name in ((was,) if isinstance(was, str) else was) if name in there), "")


def _ordered(conn: Connection, column: Column[Any]) -> ColumnElement[Any]:
    # as Python compares strings, whatever collation the database has
    return collate(column, "C") if conn.dialect.name == "postgresql" and isinstance(column.type, Text) else column
