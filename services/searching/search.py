"""One search: the scope's index brought up to date, the query's vector, the ranking, the cards as documents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from events.errors import RefoldError, Refused, Transient
from events.times import check_time
from projections.context import tokens
from projections.read_models import ReadModels
from projections.retrieval.documents import read_cards
from projections.retrieval.filters import compile_filter
from projections.retrieval.query import CardQuery
from projections.retrieval.ranking import Hit, Ranking, rank
from projections.retrieval.reranking import WINDOW, Run, read_outcomes, rerank, runs_of
from projections.retrieval.text import passages
from services.embedding.queries import QueryVector
from services.searching.scopes import CARDS, Fresh, ScopeIndexes

Vector = NDArray[np.float32]
Embed = Callable[[str], Awaitable[QueryVector]]
"""A query's text to its vector, as ``Embeddings.of_query``."""


class Judge(Protocol):
    """What tells how well passages answer a query: a cross-encoder."""

    async def judge(self, query: str, passages: list[str]) -> list[float]:
        """0..1 for each. Raises Transient or SetupError when it cannot tell."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


TASKS = "task_state"
EMBED_S = 10.0
"""How long a search waits for its query's vector, which may have a model to load; then words alone must do."""

_log = logging.getLogger("refold.search")


@dataclass(frozen=True)
class Answer:
    """``items``: documents of cards, each with ``score`` and ``relevance``, and ``signals`` where they were asked for.

    ``total``: cards that fit; ``more``: whether some follow this page. ``model``: whose vectors were compared; empty
    where none were, and ``why`` says the reason. ``note``: how far the read model was. ``vector``: of the query.
    """

    items: list[dict[str, Any]]
    total: int
    more: bool
    model: str
    why: str
    note: dict[str, Any]
    vector: Vector | None = field(default=None, repr=False)


class Searcher:
    """Searches cards. One instance a process, so that searches share what is in memory."""

    def __init__(
        self,
        read_models: ReadModels,
        indexes: ScopeIndexes,
        embed: Embed | None,
        judge: Judge | None = None,
        *,
        embed_s: float = EMBED_S,
    ) -> None:
        self._read_models = read_models
        self._indexes = indexes
        self._embed = embed
        self._judge = judge
        self._embed_s = embed_s

    @property
    def bytes(self) -> int:
        """Memory that the indexes take, roughly."""
        return self._indexes.bytes

    async def close(self) -> None:
        """Let go of the cross-encoder, if there is one."""
        if self._judge is not None:
            await self._judge.close()

    async def search(self, query: CardQuery, after: str | None = None, *, now_s: float | None = None) -> Answer:
        """Answer a query from all that its scope holds, at least up to the position token ``after``.

        ``now_s``: seconds since 1970 for what has expired; the wall clock, unless told. Raises Refused for a filter, a
        time or a scope that cannot be searched.
        """
        compile_filter(query.filter)
        if query.as_of:
            _check_moment(query.as_of)
        asking = asyncio.create_task(self._vector(query.text))
        try:
            async with self._indexes.fresh(query.scope, after) as fresh:
                asked = await asking
                theirs = fresh.cards.vectors.model
                if asked.vector is not None and asked.model != theirs:
                    asked = QueryVector("", None, f"the cards have vectors of {theirs or 'no model'}")
                now = time.time() if now_s is None else now_s
                ranking = await asyncio.to_thread(rank, fresh.cards, query, asked.vector, now, WINDOW)
        finally:
            asking.cancel()
        hits = rerank(ranking.hits, await self._outcomes(query, ranking.hits), await self._judged(query, ranking.hits))
        return await self._answer(query, Ranking(hits[query.offset :][: query.top_k], ranking.total), fresh, asked)

    async def _outcomes(self, query: CardQuery, hits: list[Hit]) -> dict[Run, float]:
        """How the runs of the first cards ended, as far as task state tells."""
        runs = runs_of(hits)
        if not runs:
            return {}
        work = partial(read_outcomes, org=query.scope.org, runs=runs)
        try:
            return (await self._read_models.read(TASKS, work)).value
        except (Refused, Transient):  # a registry without it, or it is not there yet: then it has no say
            return {}

    async def _judged(self, query: CardQuery, hits: list[Hit]) -> dict[str, float]:
        """What the cross-encoder says of the first cards, by card; nothing without one, or when it fails."""
        if self._judge is None or not query.text.strip() or not hits:
            return {}
        entries = [hit.entry for hit in hits[:WINDOW]]
        work = partial(read_cards, org=query.scope.org, entries=entries)
        documents = (await self._read_models.read(CARDS, work)).value
        texts = {card: passages(document)[0] for card, document in documents.items() if passages(document)}
        try:
            async with asyncio.timeout(self._embed_s):
                judged = await self._judge.judge(query.text, list(texts.values()))
        except (RefoldError, TimeoutError) as error:
            _log.warning("the cross-encoder could not be asked: %s", error)
            return {}
        return dict(zip(texts, judged, strict=True))

    async def _vector(self, text: str) -> QueryVector:
        if self._embed is None:
            return QueryVector("", None, "nothing embeds queries here")
        try:
            async with asyncio.timeout(self._embed_s):
                return await self._embed(text)
        except (Transient, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._embed_s:g} s"
            return QueryVector("", None, f"the query could not be embedded in time: {reason}")

    async def _answer(self, query: CardQuery, ranking: Ranking, fresh: Fresh, asked: QueryVector) -> Answer:
        entries = [hit.entry for hit in ranking.hits]
        work = partial(read_cards, org=query.scope.org, entries=entries)
        documents = (await self._read_models.read(CARDS, work)).value if entries else {}
        items = [
            _item(documents[hit.entry.card], hit, query.explain) for hit in ranking.hits if hit.entry.card in documents
        ]
        kept = _within(items, query.max_tokens)
        more = query.offset + len(ranking.hits) < ranking.total or len(kept) < len(items)
        model = asked.model if asked.vector is not None else ""
        return Answer(kept, ranking.total, more, model, asked.why, fresh.note, asked.vector)


def _check_moment(time: str) -> None:
    try:
        check_time(time)
    except Refused as error:
        raise Refused(str(error).replace("`time`", "`as_of`"), code=error.code, field="as_of") from error


def _item(document: dict[str, Any], hit: Hit, explain: bool) -> dict[str, Any]:
    item = {**document, "status": hit.state, "score": hit.score, "relevance": hit.relevance}
    return {**item, "signals": dict(hit.shares)} if explain else item


def _within(items: list[dict[str, Any]], max_tokens: int | None) -> list[dict[str, Any]]:
    """The first items whose summaries fit together into so many tokens."""
    if max_tokens is None:
        return items
    kept: list[dict[str, Any]] = []
    left = max_tokens
    for item in items:
        left -= tokens.count(str(item.get("model_summary") or item.get("summary") or ""))
        if left < 0:
            break
        kept.append(item)
    return kept
