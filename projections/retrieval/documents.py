"""The cards of an answer, as documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select, tuple_

from projections.cards import tables as t
from projections.queries.rows import pick, position
from projections.retrieval.entry import Entry

Document = dict[str, Any]

_SHOWN = (
    "card", "source", "trust", "tool", "call_id", "summary", "model_summary", "excludes", "entity", "attribute",
    "reasons", "refresh", "superseded_by", "as_of", "ttl_s", "agent", "user", "session", "run", "task",
)  # fmt: skip


def read_cards(conn: Connection, org: str, entries: Iterable[Entry]) -> dict[str, Document]:
    """Documents by card id; one that was erased meanwhile is not among them."""
    wanted = [(entry.key, entry.card) for entry in entries]
    if not wanted:
        return {}
    c = t.CARDS.c
    rows = conn.execute(select(t.CARDS).where(c.org == org, tuple_(c.key, c.card).in_(wanted))).mappings()
    return {row["card"]: _document({str(name): value for name, value in row.items()}) for row in rows}


def _document(row: Document) -> Document:
    original = {"event_id": row["event_id"], "partition": row["partition"], "position": position(row)}
    shown = {**pick(row, *_SHOWN), "value": row["value"], "uses": row["uses"], "status": row["status"]}
    return {**shown, "facts": row["facts"] or [], "original": {**original, "chars": row["chars"]}}
