"""Which documents of a scope hold which words, and how well a query's words fit them (BM25).

Counts are of the documents that are there now: one that was taken out, or changed, leaves no trace in any score, so the
scores follow from the set of documents alone and not from how it came about.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
"""How soon repeats of a word stop to count."""
B = 0.75
"""How far a long document's words count less."""
MAX_QUERY_WORDS = 512
"""Different words of a query that count, the first ones."""
MAX_COUNT = 255

_BYTES_A_WORD = 220
_BYTES_A_POSTING = 8


class Postings:
    """An inverted index of numbered documents. Numbers are never used again; ``alive`` says which still are there.

    With ``k1`` and ``b`` of 0 neither repeats nor lengths count: a document has a word or has not.
    """

    def __init__(self, k1: float = K1, b: float = B) -> None:
        self._k1, self._b = k1, b
        self._of_word: dict[str, array[int]] = {}
        self._lengths = array("I")
        self._entries = 0

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def bytes(self) -> int:
        """Memory it takes, roughly."""
        return len(self._of_word) * _BYTES_A_WORD + self._entries * _BYTES_A_POSTING + len(self._lengths) * 4

    def add(self, words: Sequence[str]) -> int:
        """Take in the next document; its number."""
        number = len(self._lengths)
        self._lengths.append(len(words))
        for word, count in Counter(words).items():
            self._of_word.setdefault(word, array("I")).extend((number, min(count, MAX_COUNT)))
        self._entries += len(set(words))
        return number

    def scores(
        self, query: Sequence[str], alive: NDArray[np.bool_], substance: Mapping[str, float] | None = None
    ) -> NDArray[np.float64]:
        """BM25 of every document for a query's words, ``float64[len(self)]``; 0 for those that are not alive.

        A score is divided by what a document would reach that held every word of the query without end. So it lies
        within 0..1, neither a long query nor a rare word makes it saturate, and a document that shares one common word
        with a long question has little. ``substance``: what words of the query count, above 0; others count 1.
        """
        scores = np.zeros(len(self._lengths))
        lengths = np.array(self._lengths, dtype=np.uint32)
        total = int(alive.sum())
        mean = float(lengths[alive].sum()) / total if total else 0.0
        if mean == 0.0:
            return scores
        norms = self._k1 * (1 - self._b + self._b * lengths / mean)
        best = 0.0
        for word, weight in _weights(query, substance or {}).items():
            pairs = np.array(self._of_word.get(word, ()), dtype=np.uint32).reshape(-1, 2)
            pairs = pairs[alive[pairs[:, 0]]]
            holding = len(pairs)
            rarity = weight * math.log(1 + (total - holding + 0.5) / (holding + 0.5))
            best += rarity * (self._k1 + 1)
            counts = pairs[:, 1].astype(np.float64)
            scores[pairs[:, 0]] += rarity * counts * (self._k1 + 1) / (counts + norms[pairs[:, 0]])
        return scores / best if best else scores


def _weights(query: Sequence[str], substance: Mapping[str, float]) -> Mapping[str, float]:
    """A query's words with how much each counts: a word said again counts more, but not in proportion."""
    counts = Counter(query)
    return {word: substance.get(word, 1.0) * (1 + math.log(counts[word])) for word in list(counts)[:MAX_QUERY_WORDS]}
