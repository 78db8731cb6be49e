"""The searcher of a process, as its settings say."""

from __future__ import annotations

from services.composition import Backend
from services.searching.judging import CrossEncoder
from services.searching.scopes import ScopeIndexes
from services.searching.search import Searcher


def open_searcher(backend: Backend) -> Searcher:
    """Searches what a backend holds; ``close`` it in the end."""
    settings = backend.settings
    judge = CrossEncoder(settings.rerank_model) if settings.rerank_model else None
    indexes = ScopeIndexes(
        backend.read_models, backend.db,
        max_bytes=settings.search_memory_mb << 20, max_cards=settings.search_max_cards,
        timeout_s=settings.read_timeout_s,
    )  # fmt: skip
    return Searcher(backend.read_models, indexes, backend.embeddings.of_query, judge)
