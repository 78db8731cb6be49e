"""What a projection is: a value. The engine does the rest, the same for all (DESIGN 5).

A projection file reads top-down: docstring that maps each event to its effect, tables, pure ``apply``, and the one
``Projection(...)`` value. It sees no session, clock, random source or Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import orjson
from sqlalchemy import Column, MetaData, Table, Text
from sqlalchemy.types import TypeDecorator

from events.event import Recorded

WAS = "was"
"""Key in the ``info`` of a table or column whose value is its former name, or a tuple of them, the newest first.

Until a renamed read model is rebuilt, its reads are served from the tables of the former code by it.
"""

UNREAD = "unread"
"""Key in the ``info`` of a table whose rows ``apply`` puts and never asks for, so that none is kept in memory."""

Row = Mapping[str, Any]
"""One row without its ``org`` and ``key`` columns, which the engine knows. Never changed in place: put a new one."""


def json_text(value: Any) -> str:
    """The text of a JSON value in a store: keys sorted, so that equal values are equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


class Json(TypeDecorator[Any]):
    """A JSON value stored as text with sorted keys, so that equal values are equal bytes in every store."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        """Value to text; None is NULL."""
        return None if value is None else json_text(value)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Text to value."""
        return None if value is None else orjson.loads(value)


class RowRef(NamedTuple):
    """A row of the event's key: its table's name and its primary key after ``org`` and ``key`` (may be empty)."""

    table: str
    pk: tuple[Any, ...] = ()


class Put(NamedTuple):
    """Insert or replace a row. ``row`` holds every column but ``org`` and ``key``; absent columns become NULL."""

    table: str
    row: Row


class Drop(NamedTuple):
    """Delete a row, if it is there."""

    table: str
    pk: tuple[Any, ...] = ()


Change = Put | Drop


class Rows(Protocol):
    """The rows that the event's key owns, as they stand before the event."""

    def get(self, table: str, *pk: Any) -> Row | None:
        """The row, or None. A row that ``names`` did not name costs an extra round trip the first time."""
        ...


def _no_rows(recorded: Recorded) -> Iterable[RowRef]:
    return ()


def _partition_key(recorded: Recorded) -> str:
    return recorded.event.key


@dataclass(frozen=True)
class Projection:
    """One read model.

    ``apply(recorded, rows)`` is pure: same event, same rows, same changes. A key owns its rows: whatever is put gets
    the event's ``org`` and ``key``, so a fold cannot write what another owner writes. ``names`` tells which rows
    ``apply`` will ask for, so that a batch costs one SELECT a table. ``key`` is the partition key; another one must
    be a function of it, or two owners would write one row. ``replaces`` names the read models that this one was (a
    rename) or was part of (a split): it is read from their active generation until its own is built.
    ``parameters`` is what else the fold depends on (values bound into ``apply``), as text: generations made with other
    parameters are stale, as those of other code are. ``cache_rows`` bounds the rows in memory for each owned partition
    further, where rows are large.
    """

    name: str
    version: int
    tables: tuple[Table, ...]
    handles: frozenset[str]
    apply: Callable[[Recorded, Rows], Iterable[Change]]
    names: Callable[[Recorded], Iterable[RowRef]] = _no_rows
    key: Callable[[Recorded], str] = _partition_key
    replaces: tuple[str, ...] = ()
    parameters: str = ""
    cache_rows: int | None = None


def read_model_table(
    metadata: MetaData, name: str, *columns: Column[Any], was: str | tuple[str, ...] = (), unread: bool = False
) -> Table:
    """A table whose rows belong to a key: ``org`` and ``key`` lead its primary key, ``columns`` follow.

    Columns marked ``primary_key=True`` complete the primary key. Use Text, BigInteger, Double, Boolean and ``Json``.
    ``was``: what it was called before; for a column, ``info={"was": "former_name"}``. ``unread``: ``apply`` only puts
    its rows and never asks for one (histories, large values): then none is kept in memory, and asking is an error.
    """
    owner = (Column("org", Text, primary_key=True), Column("key", Text, primary_key=True))
    return Table(name, metadata, *owner, *columns, info={WAS: was, UNREAD: unread})
