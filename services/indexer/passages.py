"""The passages of cards as the indexer takes them from the read model: those that changed lately, or all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Tuple, func, literal, select, tuple_

from events.event import Position
from projections.cards.tables import CARDS
from projections.retrieval.models import Reach
from projections.retrieval.text import content_hash, passages

_C = CARDS.c
_TOLD = (_C.org, _C.status, _C.tool, _C.summary, _C.model_summary, _C.facts)
_CHANGED = (_C.changed_epoch, _C.changed_n)
_IS_ACTIVE = _C.status == "active"


class Page(NamedTuple):
    """Some cards: ``wanted`` are the passages of active ones, by organisation and content hash.

    ``known`` are the hashes of all of them, whatever their status. ``cards`` counts them.
    """

    cards: int
    wanted: Mapping[str, Mapping[str, str]]
    known: Mapping[str, set[str]]


def changed_since(conn: Connection, partition: int, after: Position, limit: int) -> tuple[Page, Position | None]:
    """Cards of a partition that changed after a position, ``limit`` at most, and the position of the last of them.

    The position is None where these are all: whoever goes on from it misses nothing.
    """
    where = (_C.partition == partition, tuple_(*_CHANGED) > _at(after))
    query = select(*_TOLD, *_CHANGED).where(*where).order_by(*_CHANGED).limit(limit + 1)
    rows = conn.execute(query).mappings().all()
    if len(rows) <= limit:
        return _page(rows), None
    # one event may change many cards: the page ends before the cards of the event that would be cut in two
    last = _position(rows[-1])
    whole = [row for row in rows if _position(row) < last]
    if whole:
        return _page(whole), _position(whole[-1])
    at = conn.execute(select(*_TOLD).where(_C.partition == partition, tuple_(*_CHANGED) == _at(last)))
    return _page(at.mappings().all()), last


def orgs(conn: Connection) -> list[str]:
    """The organisations that have cards."""
    return list(conn.execute(select(_C.org).distinct()).scalars())


def of_org(conn: Connection, org: str, after: tuple[str, str], limit: int) -> tuple[Page, tuple[str, str] | None]:
    """Cards of an organisation in the order of their keys, after one of them; the key of the last, None at the end."""
    where = (_C.org == org, tuple_(_C.key, _C.card) > tuple_(*after))
    query = select(*_TOLD, _C.key, _C.card).where(*where).order_by(_C.key, _C.card).limit(limit)
    rows = conn.execute(query).mappings().all()
    return _page(rows), (rows[-1]["key"], rows[-1]["card"]) if len(rows) == limit else None


def waiting(conn: Connection, generation: str, reached: Mapping[int, Reach]) -> int:
    """Active cards that changed since a model has looked at their partition."""
    count = select(func.count()).select_from(CARDS).where(_IS_ACTIVE)
    upto = {p: each.position for p, each in reached.items() if each.generation == generation}
    left = int(conn.execute(count.where(_C.partition.not_in(upto))).scalar_one())
    for partition, position in upto.items():
        since = count.where(_C.partition == partition, tuple_(*_CHANGED) > _at(position))
        left += int(conn.execute(since).scalar_one())
    return left


def _page(rows: Sequence[Mapping[Any, Any]]) -> Page:
    wanted: dict[str, dict[str, str]] = {}
    known: dict[str, set[str]] = {}
    for row in rows:
        hashed = {content_hash(text): text for text in passages(row)}
        known.setdefault(row["org"], set()).update(hashed)
        if row["status"] == "active":
            wanted.setdefault(row["org"], {}).update(hashed)
    return Page(len(rows), wanted, known)


def _at(position: Position) -> Tuple:
    return tuple_(literal(position.epoch, BigInteger), literal(position.n, BigInteger))


def _position(row: Mapping[Any, Any]) -> Position:
    return Position(row["changed_epoch"], row["changed_n"])
