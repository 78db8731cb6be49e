"""What contexts are made of elsewhere: the whole history, its end, its head and tail, the passages that fit a query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import log

import numpy as np

from projections.context.cuts import cut
from projections.context.tokens import weigh
from projections.retrieval.words import words
from services.bench.decisions import History
from services.embedding.model import Embedder, Matrix

PASSAGE = 400
"""Characters of a passage."""

TOP_K = 10
_QUERY = 2
_K1, _B = 1.2, 0.75

Rival = Callable[[History], str]


def whole(history: History) -> str:
    """Every message."""
    return "\n".join(f"{message.role}: {message.text}" for message in history.messages)


def last(count: int) -> Rival:
    """The last messages."""

    def made(history: History) -> str:
        return "\n".join(f"{message.role}: {message.text}" for message in history.messages[-count:])

    return made


def head_and_tail(share: float) -> Rival:
    """The first and the last messages, half of a share of the history's tokens each; one that is too long is cut."""

    def made(history: History) -> str:
        half = int(history.tokens * share / 2)
        return f"{cut(whole(history), half)}\n[...]\n{_tail(history, half)}"

    return made


def _tail(history: History, tokens: int) -> str:
    kept: list[str] = []
    left = float(tokens)
    for message in reversed(history.messages):
        if message.tokens > left:
            kept.append(message.text[-int(len(message.text) * left / message.tokens) :] if left >= 1 else "")
            break
        kept.append(message.text)
        left -= message.tokens
    return "\n".join(reversed(kept))


def best_by_words(history: History) -> str:
    """The passages that BM25 ranks first for what was said last, in the order of the history."""
    passages = passages_of(history)
    scores = bm25([words(passage) for passage in passages], words(query_of(history)))
    return _best(passages, scores)


def best_by_meaning(model: Embedder) -> Rival:
    """The passages whose embeddings are nearest to that of what was said last, in the order of the history."""
    known: dict[str, Matrix] = {}

    def made(history: History) -> str:
        passages = passages_of(history)
        new = [passage for passage in dict.fromkeys([*passages, query_of(history)]) if passage not in known]
        if new:
            known.update(zip(new, model.embed(new), strict=True))
        if not passages:
            return ""
        scores = np.stack([known[passage] for passage in passages]) @ known[query_of(history)]
        return _best(passages, [float(score) for score in scores])

    return made


def passages_of(history: History) -> list[str]:
    """The history in passages of at most ``PASSAGE`` characters."""
    return [
        message.text[start : start + PASSAGE]
        for message in history.messages
        for start in range(0, len(message.text), PASSAGE)
    ]


def query_of(history: History) -> str:
    """What was said last, by people and the model, calls and results apart."""
    said = [message.text for message in history.messages if message.role not in ("tool", "call")]
    return "\n".join(said[-_QUERY:])[-PASSAGE * 2 :]


def bm25(documents: Sequence[Sequence[str]], query: Sequence[str]) -> list[float]:
    """Okapi BM25 of each document."""
    counts = [Counter(document) for document in documents]
    holders = Counter(word for count in counts for word in count)
    average = sum(map(len, documents)) / max(1, len(documents)) or 1.0
    scores = []
    for document, count in zip(documents, counts, strict=True):
        norm = _K1 * (1 - _B + _B * len(document) / average)
        score = 0.0
        for word in set(query) & count.keys():
            rarity = log(1 + (len(documents) - holders[word] + 0.5) / (holders[word] + 0.5))
            score += rarity * count[word] * (_K1 + 1) / (count[word] + norm)
        scores.append(score)
    return scores


def _best(passages: Sequence[str], scores: Sequence[float]) -> str:
    chosen = sorted(range(len(passages)), key=lambda place: (-scores[place], place))[:TOP_K]
    return "\n".join(passages[place] for place in sorted(chosen))


def tokens_of(text: str) -> float:
    """Tokens of a context, by the estimate that the history is counted with."""
    return weigh(text)
