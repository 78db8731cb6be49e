"""Reads of memory cards: the cards of a task, one card with its uses, and where a value stands."""

from __future__ import annotations

from sqlalchemy import Connection, select

from events.keys import task_key
from projections.cards import tables as t
from projections.cards.values import normal
from projections.queries.rows import Document, many, one, pick, position

_SHOWN = (
    "card", "source", "tool", "call_id", "summary", "model_summary", "excludes", "entity", "value", "reasons", "uses",
    "status", "superseded_by", "as_of", "last_seen", "seen", "run", "task", "session", "event_id",
)  # fmt: skip


def cards_of_task(
    conn: Connection, org: str, task: str, *, status: str = "active", limit: int = 50, offset: int = 0
) -> list[Document]:
    """Cards of a task, the most valuable first, then the latest; ``status=""`` for all of them."""
    c = t.CARDS.c
    where = [c.status == status] if status else []
    order = (c.value.desc(), c.epoch.desc(), c.n.desc())
    rows = many(conn, t.CARDS, org, task_key(task), *where, order=order, limit=limit, offset=offset)
    return [_card(row) for row in rows]


def card_document(conn: Connection, org: str, card: str) -> Document | None:
    """One card with everything that used it; None when there is none of this id."""
    key = conn.execute(select(t.CARDS.c.key).where(t.CARDS.c.org == org, t.CARDS.c.card == card)).scalar()
    row = one(conn, t.CARDS, org, key, t.CARDS.c.card == card) if key else None
    if row is None or key is None:
        return None
    c = t.CARD_USES.c
    uses = many(conn, t.CARD_USES, org, key, c.card == card, order=(c.epoch, c.n))
    return {
        **_card(row),
        "values": row["values"] or [],
        "used_by": [
            pick(use, "kind", "used_by", "name", "values", "event_id", "time") | {"position": position(use)}
            for use in uses
        ],
    }


def where_value(conn: Connection, org: str, task: str, value: str) -> Document | None:
    """Which cards of a task brought and last confirmed a value, and how often it was used; None when it is in none."""
    row = one(conn, t.CARD_VALUES, org, task_key(task), t.CARD_VALUES.c.value == normal(value))
    return None if row is None else row


def _card(row: Document) -> Document:
    """A card with the way back to its original: event, partition and position."""
    original = {"event_id": row["event_id"], "partition": row["partition"], "position": position(row)}
    return {**pick(row, *_SHOWN), "value": row["value"], "original": {**original, "chars": row["chars"]}}
