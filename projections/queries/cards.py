"""Reads of memory cards: the cards of a task, and one card with its uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from events.keys import task_key
from projections.cards import tables as t
from projections.cards.rules import AHEAD, CAUSAL, CHANGE, CONSTRAINT, NOVELTY
from projections.queries.rows import Document, is_over, many, one, pick, position

_SHOWN = (
    "card", "source", "trust", "tool", "call_id", "summary", "model_summary", "excludes", "entity", "attribute",
    "value", "reasons", "uses", "status", "superseded_by", "outdated", "invalidated_by", "as_of", "ttl_s", "refresh",
    "last_seen", "seen", "agent", "user", "run", "task", "session", "event_id",
)  # fmt: skip

EXPIRED = "expired"
_AHEAD_TOLD = 3


def cards_of_task(
    conn: Connection,
    org: str,
    task: str,
    *,
    status: str = "active",
    limit: int = 50,
    offset: int = 0,
    now: datetime | None = None,
) -> list[Document]:
    """Cards of a task, the most valuable first, then the latest; ``status=""`` for all of them.

    With ``now``, active cards whose time is over are ``expired``.
    """
    c, key = t.CARDS.c, task_key(task)
    over = _expired_of(conn, org, key, now) if now is not None and status in ("active", EXPIRED) else []
    where: list[ColumnElement[bool]] = []
    if status == EXPIRED:
        where = [c.card.in_(over)]
    elif status:
        where = [c.status == status, c.card.not_in(over)]
    order = (c.value.desc(), c.epoch.desc(), c.n.desc())
    rows = many(conn, t.CARDS, org, key, *where, order=order, limit=limit, offset=offset)
    return [_card(row, now) for row in rows]


def _expired_of(conn: Connection, org: str, key: str, now: datetime) -> list[str]:
    c = t.CARDS.c
    query = select(c.card, c.as_of, c.ttl_s).where(
        c.org == org, c.key == key, c.status == "active", c.ttl_s.is_not(None)
    )
    return [card for card, as_of, ttl_s in conn.execute(query) if is_over(as_of, ttl_s, now)]


def card_document(conn: Connection, org: str, card: str, now: datetime | None = None) -> Document | None:
    """One card: its facts and values, what used it, what it took the place of; None when there is none of this id."""
    key = key_of(conn, org, card)
    row = one(conn, t.CARDS, org, key, t.CARDS.c.card == card) if key else None
    if row is None or key is None:
        return None
    c = t.CARD_USES.c
    uses = many(conn, t.CARD_USES, org, key, c.card == card, order=(c.epoch, c.n))
    replaced = select(t.CARDS.c.card).where(t.CARDS.c.org == org, t.CARDS.c.key == key, t.CARDS.c.superseded_by == card)
    return {
        **_card(row, now),
        "values": row["values"] or [],
        "facts": row["facts"] or [],
        "used_by": [
            pick(use, "kind", "used_by", "name", "values", "event_id", "time")
            | {"links": _links(use), "position": position(use)}
            for use in uses
        ],
        "supersedes": sorted(conn.execute(replaced).scalars()),
    }


def key_of(conn: Connection, org: str, card: str) -> str | None:
    """The partition key that owns a card; None when there is none of this id."""
    return conn.execute(select(t.CARDS.c.key).where(t.CARDS.c.org == org, t.CARDS.c.card == card)).scalar()


def _links(use: Document) -> list[dict[str, str]]:
    return [{"value": value, "field": field, "parameter": parameter} for value, field, parameter in use["links"] or ()]


def why(row: Mapping[str, Any]) -> list[str]:
    """Why a card exists, a sentence for each rule that spoke for it, the weightiest first."""
    reasons: Mapping[str, int] = row["reasons"] or {}
    told: Mapping[str, Callable[[int], str]] = {
        CAUSAL: lambda times: f"used by {times} later call{_s(times)} or decision{_s(times)}",
        CONSTRAINT: lambda _: f"rules something out: {row['excludes']}" if row["excludes"] else "rules something out",
        AHEAD: lambda _: f"may be asked for: {'; '.join(_asked(*one) for one in (row['ahead'] or ())[:_AHEAD_TOLD])}",
        CHANGE: lambda _: "a conclusion" if row["source"] == "decision" else "came of a call that changes something",
        NOVELTY: lambda _: "told something new",
    }
    return [tell(reasons[rule]) for rule, tell in told.items() if rule in reasons]


def _s(count: int) -> str:
    return "s" if count > 1 else ""


def _asked(field: str, by: str, parameter: str) -> str:
    return f"{field} by {by} (as {parameter})" if parameter else f"{field} by step {by}"


def _card(row: Document, now: datetime | None = None) -> Document:
    """A card with why it exists, and the way back to its original: event, partition and position."""
    original = {"event_id": row["event_id"], "partition": row["partition"], "position": position(row)}
    over = now is not None and row["status"] == "active" and is_over(row["as_of"], row["ttl_s"], now)
    return {
        **pick(row, *_SHOWN),
        "value": row["value"],
        "why": why(row),
        **({"status": EXPIRED} if over else {}),
        "original": {**original, "chars": row["chars"]},
    }
