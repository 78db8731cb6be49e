"""How well each card of a scope fits a query, in which order they are answered, and why.

*Relevance* (0..1) fuses what tells whether a card is about the query: ``embedding`` (best passage), ``keyword`` (BM25),
``values`` (exact ids, numbers, dates, names of the query, rare ones more) and, where one is given, the ``focus``, the
decision that the answer is for. What the query says nothing to is left out: a query without a value is not the worse
for it; of its words, those that only make a question count little (``asking``). *Rerank* then raises, among cards of
like relevance, those of a ``session`` that has something very relevant (what was said beside an answer belongs to it),
and a little those that are recent, valuable, used, and were used by things worded like the query (``trigger``;
``reranking`` adds how its run ended). All of that is a part of the relevance, so that nothing irrelevant rises by being
new. The ``shares`` of a card add up to its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from events.times import instant
from projections.bounds import short
from projections.cards.reading.values import of_text
from projections.retrieval.asking import substance
from projections.retrieval.entry import Entry
from projections.retrieval.filters import compile_filter
from projections.retrieval.fusion import Scores, Signal, fuse
from projections.retrieval.query import ANY, CardQuery
from projections.retrieval.scope_index import Columns, Flags, ScopeIndex
from projections.retrieval.words import words

GAIN = 0.6
"""How much the rerank can add to a relevance, in parts of it."""
RERANK = {"session": 7.0, "recency": 1.0, "value": 1.0, "links": 1.0, "trigger": 1.0, "outcome": 1.0}
"""Weights within the rerank."""
NEUTRAL = 0.5
"""What an outcome counts that is not known; ``reranking`` looks it up for the first cards."""
HALF_LIFE_S = 30 * 86_400.0
"""Age, before the newest card of the scope, at which recency is halved."""

RISE = 0.15
"""How far the best cosine must stand out from the mean of them to be set against it in full."""
EMBEDDING = (0.6, 0.5)
KEYWORD = (0.4, 0.25)
VALUES = (0.4, 0.3)
FOCUS = (0.6, 0.3)
"""Weight of each signal, and the floor below which its best is weak: cosines, or scores as parts of the greatest."""

DIGITS = 6
"""Digits of scores and shares."""


class Hit(NamedTuple):
    """A card that fits. ``relevance`` and ``score`` are within 0..1; ``state`` is its status at the query's moment."""

    entry: Entry
    score: float
    relevance: float
    state: str
    shares: Mapping[str, float]


class Ranking(NamedTuple):
    """The first hits in order, and how many cards fit in all."""

    hits: list[Hit]
    total: int


def rank(
    index: ScopeIndex, query: CardQuery, vector: NDArray[np.float32] | None, now_s: float, least: int = 0
) -> Ranking:
    """A query's order up to the end of its page, and at least ``least`` hits where there are so many.

    ``vector``: of its text, by the model of the index. ``now_s``: seconds since 1970. Equal scores are ordered by card
    id, so that pages never overlap while the cards stay as they are.
    """
    columns = index.columns()
    moment = instant(query.as_of).timestamp() if query.as_of else None
    allowed = _allowed(index, query, columns, moment, now_s)
    relevance = _relevance(index, query, columns.alive, vector)
    total = np.sum(list(relevance.values()), axis=0)
    allowed &= np.round(total, DIGITS) >= max(query.threshold, 10**-DIGITS)
    shares = {name: part / (1 + GAIN) for name, part in relevance.items()}
    priors = _priors(index, query, columns, moment)
    priors["session"] = _best_beside(columns.group, np.where(allowed, total, 0.0))
    shares |= _gains(priors, total)
    shares = {name: np.round(share, DIGITS) for name, share in shares.items()}
    scores = np.round(np.sum(list(shares.values()), axis=0), DIGITS)  # what is told adds up to the score
    first = _first(index, scores, np.flatnonzero(allowed), max(least, query.offset + query.top_k))
    ends = moment if moment is not None else now_s
    hits = [
        Hit(
            index.entries[number], float(scores[number]), round(float(total[number]), DIGITS),
            _state(index, index.entries[number], moment, ends),
            {name: float(share[number]) for name, share in shares.items()},
        )
        for number in first
    ]  # fmt: skip
    return Ranking(hits, int(allowed.sum()))


# --- what may be answered at all -------------------------------------------------------------------------------------


def _allowed(index: ScopeIndex, query: CardQuery, columns: Columns, moment: float | None, now_s: float) -> Flags:
    holds = compile_filter(query.filter)
    allowed = columns.alive.copy()
    ends = now_s
    if moment is not None:
        allowed &= columns.as_of_s <= moment
        ends = moment
    elif query.status == "active":
        allowed &= columns.is_active & (columns.ends_s > now_s)
    if query.filter or (query.status != ANY and (moment is not None or query.status != "active")):
        for number in np.flatnonzero(allowed):
            entry = index.entries[number]
            state = _state(index, entry, moment, ends)
            allowed[number] = query.status in (ANY, state) and holds(entry._replace(status=state))
    return allowed


def _state(index: ScopeIndex, entry: Entry, moment: float | None, ends: float) -> str:
    """The status of a card at a moment: what came later had not superseded it yet; expired is what outlived its ttl."""
    state = entry.status
    if moment is not None and state == "superseded":
        later = index.find(entry.superseded_by)
        state = "active" if later is not None and later.as_of_s > moment else state
    return "expired" if state == "active" and entry.ends_s() <= ends else state


# --- relevance -------------------------------------------------------------------------------------------------------


def _relevance(
    index: ScopeIndex, query: CardQuery, alive: Flags, vector: NDArray[np.float32] | None
) -> dict[str, Scores]:
    size = len(index.entries)
    if not query.text.strip() and not query.focus:
        return {"everything": np.ones(size)}
    asked = words(query.text)
    signals: dict[str, Signal] = {}
    if asked:
        signals["keyword"] = Signal(index.words.scores(asked, alive, substance(asked)), *KEYWORD)
    if vector is not None:
        cosines, known = index.vectors.cosines(vector)
        known &= alive
        if known.any():
            signals["embedding"] = Signal(np.where(known, cosines, 0.0), *EMBEDDING, known, RISE)
    exact = index.values.scores(of_text(query.text), alive)
    if exact.any():
        signals["values"] = Signal(exact, *VALUES)
    if query.focus:
        signals["focus"] = Signal(_focus(index, query.focus, alive), *FOCUS)
    return fuse(signals, size) or {"keyword": np.zeros(size)}


def _focus(index: ScopeIndex, focus: str, alive: Flags) -> Scores:
    """1 for what the decision used, or is; half for what that superseded or stands in its place; else by its words."""
    scores = index.triggers.scores(words(focus), alive) * 0.9
    near: set[str] = set()
    for number in np.flatnonzero(alive):
        entry = index.entries[number]
        if focus in (entry.card, short(entry.card)) or focus in entry.used_by:
            scores[number] = 1.0
            near.add(entry.superseded_by)
            near.add(entry.card)
    if near:
        for number in np.flatnonzero(alive & (scores < 0.5)):
            entry = index.entries[number]
            if entry.card in near or (entry.superseded_by and entry.superseded_by in near):
                scores[number] = 0.5
    return scores


# --- rerank ----------------------------------------------------------------------------------------------------------


def _priors(index: ScopeIndex, query: CardQuery, columns: Columns, moment: float | None) -> dict[str, Scores]:
    """What speaks for a card whatever is asked, each within 0..1."""
    times = columns.as_of_s[columns.alive]
    newest = min(float(times.max(initial=0.0)), moment if moment is not None else np.inf)
    ages = np.clip(newest - columns.as_of_s, 0.0, None)
    return {
        "recency": 0.5 ** (ages / HALF_LIFE_S),
        "value": _rising(columns.value),
        "links": _rising(columns.uses),
        "trigger": index.triggers.scores(words(query.text), columns.alive),
        "outcome": np.full(len(columns.alive), NEUTRAL),
    }


def _best_beside(groups: NDArray[np.int64], relevance: Scores) -> Scores:
    """The best relevance within the session of each card: what was said beside an answer belongs to it."""
    best = np.zeros(int(groups.max(initial=-1)) + 1)
    np.maximum.at(best, groups, relevance)
    return best[groups]


def _rising(counts: Scores) -> Scores:
    """0 for nothing, towards 1 for much: what comes first counts most, and one card's count is no other's business."""
    return np.clip(counts, 0.0, None) / (np.clip(counts, 0.0, None) + 4.0)


def _gains(priors: Mapping[str, Scores], relevance: Scores) -> dict[str, Scores]:
    whole = sum(RERANK.values())
    return {name: relevance * GAIN / (1 + GAIN) * RERANK[name] / whole * prior for name, prior in priors.items()}


# --- order -----------------------------------------------------------------------------------------------------------


def _first(index: ScopeIndex, scores: Scores, numbers: NDArray[np.intp], count: int) -> list[int]:
    if len(numbers) > count:
        least = np.partition(scores[numbers], len(numbers) - count)[len(numbers) - count]
        numbers = numbers[scores[numbers] >= least]
    return sorted(numbers.tolist(), key=lambda number: (-scores[number], index.entries[number].card))[:count]
