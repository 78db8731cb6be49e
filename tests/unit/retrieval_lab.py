"""Cards for tests of retrieval, as rows of their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from projections.retrieval.query import CardQuery, Scope
from projections.retrieval.ranking import Hit, rank
from projections.retrieval.scope_index import ScopeIndex
from projections.retrieval.vector_rows import Matrix

NOW_S = 1_780_000_000.0
SCOPE = Scope("acme", user="u1")


def row(card: str, summary: str, **columns: Any) -> dict[str, Any]:
    """A row of ``cards``."""
    return {
        "card": card, "key": "task/t1", "source": "tool", "trust": "data", "tool": "", "summary": summary,
        "model_summary": "", "excludes": "", "entity": None, "attribute": "", "fields": None, "facts": None,
        "values": None, "value": 2, "uses": 0, "status": "active", "superseded_by": "", "as_of": "2026-03-01T10:00:00Z",
        "ttl_s": None, "seen": 1, "agent": "a", "user": "u1", "session": "", "run": "r1", "task": "t1", "partition": 0,
    } | columns  # fmt: skip


def index_of(*rows: Mapping[str, Any], uses: Mapping[str, list[tuple[str, str]]] | None = None) -> ScopeIndex:
    """An index of these rows."""
    index = ScopeIndex("cards__g1")
    for each in rows:
        index.put(each, (uses or {}).get(each["card"], ()))
    return index


def give_vectors(index: ScopeIndex, vectors: Mapping[str, list[float]], model: str = "m") -> None:
    """Vectors by card; of a card's passages each gets it."""
    dimension = len(next(iter(vectors.values())))
    index.vectors.use_model(model, dimension)
    for card, vector in vectors.items():
        entry = index.find(card)
        assert entry is not None
        number = index.entries.index(entry)
        hashes = index.vectors.hashes_of(number)
        index.vectors.fill(hashes, np.tile(np.array(vector, dtype=np.float32), (len(hashes), 1)))


def found(index: ScopeIndex, text: str, vector: Matrix | None = None, **asked: Any) -> list[Hit]:
    """The hits of a search's page."""
    query = CardQuery(text=text, scope=SCOPE, **asked)
    return rank(index, query, vector, NOW_S).hits[query.offset :]


def cards(hits: list[Hit]) -> list[str]:
    """Their ids, in order."""
    return [hit.entry.card for hit in hits]
