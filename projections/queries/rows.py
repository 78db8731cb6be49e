"""Rows of one key, as dictionaries; times and positions as documents show them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, bindparam, select

from events.times import instant

Document = dict[str, Any]


class Query:
    """Rows of a key in one table, as ``many`` gives them; the statement is made once and not for every read."""

    def __init__(
        self, table: Table, *where: ColumnElement[bool], order: tuple[Any, ...] = (), limit: int | None = None
    ) -> None:
        own = (table.c.org == bindparam("of_org"), table.c.key == bindparam("of_key"))
        pk = [column for column in table.primary_key if column.name not in ("org", "key")]
        columns = [column for column in table.columns if column.name not in ("org", "key")]
        self._statement = select(*columns).where(*own, *where).order_by(*order, *pk).limit(limit)
        # SQLAlchemy's names are a subclass of str, which orjson refuses as a key
        self._names = [str(column.name) for column in columns]
        self._named = _named_column(table) if "full" in table.columns else ""

    def all(self, conn: Connection, org: str, key: str, **values: Any) -> list[Document]:
        """The rows; ``values`` are for the query's own parameters."""
        found = conn.execute(self._statement, {"of_org": org, "of_key": key, **values})
        rows = [dict(zip(self._names, row, strict=True)) for row in found]
        if self._named:
            for row in rows:
                whole = row.pop("full")
                if whole:
                    row[self._named] = whole
        return rows

    def first(self, conn: Connection, org: str, key: str, **values: Any) -> Document | None:
        """The first row, or None."""
        return next(iter(self.all(conn, org, key, **values)), None)


def one(conn: Connection, table: Table, org: str, key: str, *where: ColumnElement[bool]) -> Document | None:
    """The row of a key that fits, or None."""
    found = many(conn, table, org, key, *where, limit=1)
    return found[0] if found else None


def many(
    conn: Connection,
    table: Table,
    org: str,
    key: str,
    *where: ColumnElement[bool],
    order: tuple[Any, ...] = (),
    limit: int | None = None,
    offset: int = 0,
) -> list[Document]:
    """Rows of a key, ordered by ``order`` and then by primary key, so that every order is total."""
    pk = [column for column in table.primary_key if column.name not in ("org", "key")]
    query = select(table).where(table.c.org == org, table.c.key == key, *where).order_by(*order, *pk)
    if limit is not None or offset:
        query = query.limit(limit).offset(offset)
    return [_document(table, dict(row)) for row in conn.execute(query).mappings()]


def of_run(conn: Connection, table: Table, org: str, run_key: str) -> list[Document]:
    """Rows of a run in whichever key holds them, each with its ``key``."""
    query = select(table).where(table.c.org == org, table.c.run == run_key).order_by(*table.primary_key)
    return [_document(table, dict(row)) | {"key": row["key"]} for row in conn.execute(query).mappings()]


def _document(table: Table, row: Document) -> Document:
    """Without ``org`` and ``key``; a name that was cut for the index is whole again."""
    # SQLAlchemy's names are a subclass of str, which orjson refuses as a key
    row = {str(name): value for name, value in row.items() if name not in ("org", "key")}
    whole = row.pop("full", "")
    if whole:
        row[_named_column(table)] = whole
    return row


def _named_column(table: Table) -> str:
    """The key column that ``full`` belongs to: what the row is about, which is its run only in a table of runs."""
    names = [column.name for column in table.primary_key if column.name not in ("org", "key")]
    return names[1] if names[0] == "run" and len(names) > 1 else names[0]


def position(row: Document) -> str:
    """The log position of a row, as text to show or to send back."""
    return f"{row['epoch']}-{row['n']}"


def duration_s(start: str, end: str) -> float | None:
    """Seconds between two raw times; None where one is missing, or the clocks of two hosts disagree about the order."""
    if not (start and end):
        return None
    seconds = (instant(end) - instant(start)).total_seconds()
    return seconds if seconds >= 0 else None


def until(time: str, seconds: float) -> datetime | None:
    """The moment so many seconds after a raw time; None for one that no calendar has."""
    try:
        return instant(time) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def is_over(time: str, ttl_s: float | None, now: datetime) -> bool:
    """Whether what held from a raw time on, for ``ttl_s`` seconds (None: without an end), holds no more."""
    end = None if ttl_s is None else until(time, ttl_s)
    return end is not None and end <= now


def pick(row: Document, *names: str) -> Document:
    """Some columns of a row, without those that say nothing."""
    return {name: row[name] for name in names if row[name] not in ("", None)}
