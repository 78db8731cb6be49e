"""How an ``apply`` is written: column helpers with a blank value each, and the draft that collects its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Table, Text
from sqlalchemy.types import TypeEngine

from projections.projection import Change, Drop, Json, Put, Row, Rows


def text(name: str, *, pk: bool = False) -> Column[Any]:
    """Text; blank is ``""``, as everywhere in Refold."""
    return Column(name, Text, primary_key=pk, info={"blank": ""})


def count(name: str, *, pk: bool = False) -> Column[Any]:
    """A whole number; blank is 0."""
    return Column(name, BigInteger, primary_key=pk, autoincrement=False, info={"blank": 0})


def flag(name: str) -> Column[Any]:
    """True or false; blank is false."""
    return Column(name, Boolean, info={"blank": False})


def maybe(name: str, kind: type[TypeEngine[Any]]) -> Column[Any]:
    """A number or flag that may be unknown; blank is NULL."""
    return Column(name, kind, info={"blank": None})


def json(name: str) -> Column[Any]:
    """Any JSON value; blank is NULL."""
    return Column(name, Json, info={"blank": None})


Ref = tuple[Any, ...]
"""A row by the name of its table and its primary key, as one tuple: ``("steps", "s1")``."""


class Blanks:
    """For each table of a projection, how a new row begins."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._of: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {}
        for table in tables:
            own = [column for column in table.columns if column.name not in ("org", "key")]
            pk = tuple(str(column.name) for column in own if column.primary_key)
            # names are a subclass of str in SQLAlchemy, which orjson refuses as a key
            self._of[table.name] = ({str(column.name): column.info["blank"] for column in own}, pk)

    def row(self, table: str, pk: tuple[Any, ...]) -> dict[str, Any]:
        """A blank row with its primary key filled in."""
        blank, names = self._of[table]
        row = blank.copy()
        if len(names) == len(pk) == 1:  # most of them
            row[names[0]] = pk[0]
        else:
            row.update(zip(names, pk, strict=True))
        return row


class Draft:
    """The rows of one event while ``apply`` works on them.

    ``edit`` hands out a copy to change in place; ``changes`` returns what was touched, in the order of first touch. So
    the rows that came in are never changed, and ``apply`` stays a function of its arguments.
    """

    __slots__ = ("_blanks", "_edited", "_rows")

    def __init__(self, rows: Rows, blanks: Blanks) -> None:
        self._rows = rows
        self._blanks = blanks
        self._edited: dict[Ref, dict[str, Any] | None] = {}

    def peek(self, *ref: Any) -> Row | None:
        """The row (table, primary key) as it stands now, or None; not to be changed."""
        if ref in self._edited:
            return self._edited[ref]
        return self._rows.get(*ref)

    def edit_known(self, *ref: Any) -> dict[str, Any] | None:
        """As ``edit``, but None where there is no row."""
        if ref in self._edited:
            return self._edited[ref]
        stored = self._rows.get(*ref)
        if stored is None:
            return None
        row = self._edited[ref] = {**stored}
        return row

    def edit(self, *ref: Any) -> dict[str, Any]:
        """The row (table, primary key), or a blank one, to change in place; it will be put."""
        row = self._edited.get(ref)
        if row is None:
            stored = None if ref in self._edited else self._rows.get(*ref)
            row = self._edited[ref] = self._blanks.row(ref[0], ref[1:]) if stored is None else {**stored}
        return row

    def add(self, *ref: Any) -> dict[str, Any]:
        """A new row, whatever stood under its key (nothing, where that holds the position): nothing is looked up."""
        row = self._edited[ref] = self._blanks.row(ref[0], ref[1:])
        return row

    def put(self, ref: Ref, row: dict[str, Any]) -> None:
        """A whole row, every column of it given; for rows of which an event writes hundreds."""
        self._edited[ref] = row

    def drop(self, *ref: Any) -> None:
        """The row (table, primary key) will be deleted."""
        self._edited[ref] = None

    def changes(self) -> list[Change]:
        """Puts and drops."""
        return [Drop(ref[0], ref[1:]) if row is None else _put((ref[0], row)) for ref, row in self._edited.items()]


_put: Callable[[tuple[str, Row]], Put] = partial(tuple.__new__, Put)
"""As ``Put(...)``, at half the cost: an event may put hundreds of rows."""


def pairs_start(row: dict[str, Any]) -> bool:
    """Something with a start and an end (a step, a blocker, an approval) starts. True when it is open by that.

    An end that came before its start waits in ``ahead``; the start that follows belongs to it and opens nothing. So
    start and end merge to the same row in either order, and a later start opens it again.
    """
    if row["ahead"]:
        row["ahead"] = False
        return False
    row["open"] = True
    return True


def pairs_end(row: dict[str, Any]) -> None:
    """It ends: closes what is open, else waits for its start."""
    row["ahead"] = not row["open"]
    row["open"] = False
