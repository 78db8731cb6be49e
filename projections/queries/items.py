"""Reads of items: one by namespace and key, those within a namespace, and the namespaces there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, Connection, func, or_, select

from events.keys import items_task, task_key
from projections.items import ITEMS, path_of, place_of
from projections.queries.rows import Document

_C = ITEMS.c


def item_document(conn: Connection, org: str, namespace: Sequence[str], key: str) -> Document | None:
    """One item, or None."""
    space, item = place_of(namespace, key)
    query = select(ITEMS).where(
        _C.org == org, _C.key == _key(namespace), _C.namespace_key == space, _C.item_key == item
    )
    row = conn.execute(query).mappings().first()
    return None if row is None else _document(dict(row))


def items_within(
    conn: Connection, org: str, prefix: Sequence[str], *, limit: int, beyond: tuple[str, str, str] | None = None
) -> list[tuple[list[str], Document]]:
    """Items of the namespaces that begin with ``prefix`` (empty: of all), the latest change first.

    Each with its place in the list, which ``beyond`` takes.
    """
    query = select(ITEMS).where(_C.org == org, *_within(prefix))
    if beyond is not None:
        updated, path, item = beyond
        later = or_(_C.namespace_key > path, (_C.namespace_key == path) & (_C.item_key > item))
        query = query.where(or_(_C.updated < updated, (_C.updated == updated) & later))
    query = query.order_by(_C.updated.desc(), _C.namespace_key, _C.item_key).limit(limit)
    rows = [dict(row) for row in conn.execute(query).mappings()]
    return [([row["updated"], row["namespace_key"], row["item_key"]], _document(row)) for row in rows]


def namespace_place(namespace: Sequence[str]) -> list[str]:
    """The place of a namespace in the list of them, which ``beyond`` takes."""
    return [path_of(namespace)]


def namespaces(conn: Connection, org: str, prefix: Sequence[str], *, limit: int, beyond: str = "") -> list[list[str]]:
    """The namespaces that begin with ``prefix`` and hold items, in the order of their canonical JSON."""
    query = select(_C.path, _C.namespace).where(_C.org == org, _C.path > beyond, *_within(prefix)).distinct()
    return [row.namespace for row in conn.execute(query.order_by(_C.path).limit(limit))]


def _key(namespace: Sequence[str]) -> str:
    return task_key(items_task(namespace[0]))


def _within(prefix: Sequence[str]) -> Iterator[ColumnElement[bool]]:
    if prefix:
        path = path_of(prefix)
        yield _C.key == _key(prefix)
        yield or_(_C.path == path, func.substr(_C.path, 1, len(path) + 1) == path + ",")


def _document(row: Document) -> Document:
    return {
        "namespace": row["namespace"],
        "key": row["item"],
        "value": row["value"],
        "created": row["created"],
        "updated": row["updated"],
    }
