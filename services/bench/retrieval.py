"""``refold bench retrieval``: how often the passages that answer a question are among the first k found.

Each passage is put as a card into a scope index of its own dialogue, and questions are ranked by the code that answers
searches: by keywords alone (BM25, all words of the question alike), by vectors alone (dense), and by all that searches
rank by (fusion). What depends on later use of cards (their value, links) says nothing here, since nothing uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projections.retrieval.query import CardQuery, Scope
from projections.retrieval.ranking import rank
from projections.retrieval.scope_index import ScopeIndex
from projections.retrieval.text import content_hash, passages
from projections.retrieval.words import words
from services.bench.dialogues import Dialogue, Passage, Question
from services.embedding.model import Embedder

CUTS = (1, 5, 10, 25)
WAYS = ("BM25", "dense", "fusion")
_BATCH = 64


class Found(NamedTuple):
    """One question: its user, and for each way of ranking the share of its evidence among the first k, by k."""

    user: str
    recall: Mapping[str, Mapping[int, float]]


def measure(dialogue: Dialogue, embedder: Embedder, advance: Callable[[int], None]) -> list[Found]:
    """All questions of a dialogue. ``advance`` is told how many texts were embedded, or questions answered."""
    index = _index(dialogue, embedder, advance)
    numbers = {entry.card: number for number, entry in enumerate(index.entries)}
    names = [passage.name for passage in dialogue.passages]
    found = []
    for question in dialogue.questions:
        vector = embedder.embed([question.text], query=True)[0]
        orders = _orders(index, question.text, vector)
        evidence = {numbers[_card(names.index(name))] for name in question.evidence}
        recall = {way: {k: _recall(orders[way][:k], evidence, dialogue) for k in CUTS} for way in WAYS}
        found.append(Found(question.user, recall))
        advance(1)
    return found


def _recall(first: Sequence[int], evidence: set[int], dialogue: Dialogue) -> float:
    hits = len(evidence.intersection(first))
    return hits / len(evidence) if dialogue.all_of_evidence else float(hits > 0)


def _orders(index: ScopeIndex, text: str, vector: NDArray[np.float32]) -> dict[str, list[int]]:
    """Document numbers by each way of ranking, the best first; ties in the order of their numbers."""
    alive = index.columns().alive
    most = CUTS[-1]
    query = CardQuery(text=text, scope=Scope("bench"), top_k=most)
    fused = [int(hit.entry.card) for hit in rank(index, query, vector, 0.0).hits]
    keyword = index.words.scores(words(text), alive)
    dense, _ = index.vectors.cosines(vector)
    return {
        "BM25": np.argsort(-keyword, kind="stable")[:most].tolist(),
        "dense": np.argsort(-dense, kind="stable")[:most].tolist(),
        "fusion": fused,
    }


# --- passages as cards -----------------------------------------------------------------------------------------------


def _index(dialogue: Dialogue, embedder: Embedder, advance: Callable[[int], None]) -> ScopeIndex:
    index = ScopeIndex("bench")
    rows = [_row(number, passage) for number, passage in enumerate(dialogue.passages)]
    for row in rows:
        index.put(row)
    index.vectors.use_model(embedder.name, embedder.dimension)
    told = {content_hash(text): text for row in rows for text in passages(row)}
    for some in _batches(list(told.items())):
        index.vectors.fill([name for name, _ in some], embedder.embed([text for _, text in some]))
        advance(len(some))
    return index


def texts_of(dialogue: Dialogue) -> int:
    """How many steps ``measure`` will tell of."""
    told = {text for number, passage in enumerate(dialogue.passages) for text in passages(_row(number, passage))}
    return len(told) + len(dialogue.questions)


def _batches(items: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _card(number: int) -> str:
    return f"{number:08}"


def _row(number: int, passage: Passage) -> dict[str, Any]:
    texts = (
        "source",
        "trust",
        "tool",
        "excludes",
        "superseded_by",
        "agent",
        "user",
        "run",
        "task",
        "attribute",
    )
    lists = ("entity", "fields", "facts", "values", "ttl_s")
    return {
        **dict.fromkeys(texts, ""), **dict.fromkeys(lists), **dict.fromkeys(("value", "uses", "seen", "partition"), 0),
        "card": _card(number), "key": "", "summary": passage.text, "model_summary": "", "status": "active",
        "as_of": passage.time, "session": passage.session,
    }  # fmt: skip


# --- figures ---------------------------------------------------------------------------------------------------------


def figures(found: Sequence[Found]) -> dict[str, dict[str, float]]:
    """Mean recall by way and cut, ``{"BM25": {"recall@1": ...}}``; empty without questions."""
    if not found:
        return {}
    return {
        way: {f"recall@{k}": round(sum(one.recall[way][k] for one in found) / len(found), 4) for k in CUTS}
        for way in WAYS
    }


def held_out(questions: Sequence[Question] | Sequence[Found]) -> frozenset[str]:
    """Every second user, in the order of their names: those whose questions no choice of ours was made by."""
    return frozenset(sorted({one.user for one in questions})[1::2])
