"""Rows of any read-model table as they are stored: for read models of one's own, and for looking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, select, tuple_

from projections.queries.rows import Document


def place_columns(table: Table) -> list[Column[Any]]:
    """The columns that order an org's rows and tell each from all others: the primary key without ``org``."""
    return [column for column in table.primary_key.columns if column.name != "org"]


def rows_of(
    conn: Connection,
    table: Table,
    org: str,
    *,
    key: str | None = None,
    place: Sequence[Any] | None = None,
    descending: bool = False,
    limit: int,
) -> list[Document]:
    """Rows of an org (of one partition key), without ``org``, in the order of the primary key; those after ``place``.

    ``place`` holds a value for each of ``place_columns``.
    """
    order = place_columns(table)
    query = select(*(column for column in table.columns if column.name != "org")).where(table.c.org == org)
    if key is not None:
        query = query.where(table.c.key == key)
    if place is not None:
        here, there = tuple_(*order), tuple_(*place)
        query = query.where(here < there if descending else here > there)
    query = query.order_by(*(column.desc() if descending else column for column in order)).limit(limit)
    # SQLAlchemy's names are a subclass of str, which orjson refuses as a key
    return [{str(name): value for name, value in row.items()} for row in conn.execute(query).mappings()]
