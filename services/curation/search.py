"""Memories by what they say: words with their synonyms, meaning, the slot that a query asks for, importance. Pure.

Scores are finite and 0..1 for any query, and the order is total. A query without words lists by importance. Words and
meaning share one weight, half each, where both can be told; any two texts have some likeness of meaning, so that it
counts from ``LEAST_MEANING`` on, and fully from ``SAME_MEANING``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from projections.memory.normal import normal_form
from projections.retrieval.likeness import LEAST_MEANING
from services.curation.lexicon import ATTRIBUTES
from services.curation.statements import read, words_of

WEIGHTS = {"words": 0.6, "phrase": 0.15, "slot": 0.15, "importance": 0.1}
"""What each signal adds to the score, at most."""

SAME_MEANING = 0.6
"""Cosine of query and memory from which on more tells no more."""

LONGEST_QUERY = 2_000


class Hit(NamedTuple):
    """A memory's document, its score, and what each signal added to it."""

    memory: dict[str, Any]
    score: float
    signals: dict[str, float]


def rank(memories: Sequence[dict[str, Any]], query: str, meaning: Mapping[int, float] | None = None) -> list[Hit]:
    """Memories that share something with the query, the best first; with an empty query all of them.

    ``meaning``: the cosine of the query and the memory at each place, where it is known.
    """
    text = query[:LONGEST_QUERY]
    wanted, phrase = words_of(normal_form(text)), normal_form(text)
    asked = _asked(text)
    said = [words_of(f"{one['content']} {one.get('entity', '')} {one.get('attribute', '')}") for one in memories]
    spread = Counter(word for words in said for word in words & wanted)
    weight = {word: math.log(1 + len(memories) / (1 + spread[word])) + 0.1 for word in wanted}
    # exact sums: the order of a set of words is another one in each process
    total = math.fsum(weight.values())
    hits = []
    for place, (memory, words) in enumerate(zip(memories, said, strict=True)):
        shared = math.fsum(weight[word] for word in words & wanted) / total if total else 0.0
        signals = {
            **_about(shared, (meaning or {}).get(place)),
            "phrase": WEIGHTS["phrase"] * bool(phrase and phrase in normal_form(memory["content"])),
            "slot": WEIGHTS["slot"] * bool(asked and memory.get("attribute", "").partition("@")[0] in asked),
        }
        if not wanted or any(signals.values()):
            signals["importance"] = WEIGHTS["importance"] * memory["importance"]
            hits.append(Hit(memory, round(sum(signals.values()), 6), signals))
    return sorted(hits, key=lambda hit: (-hit.score, hit.memory["scope"], hit.memory["memory"]))


def _about(shared: float, cosine: float | None) -> dict[str, float]:
    """What words and meaning add: half each, or words alone where nothing is known of the meaning."""
    if cosine is None:
        return {"words": WEIGHTS["words"] * shared}
    like = min(max(cosine - LEAST_MEANING, 0.0) / (SAME_MEANING - LEAST_MEANING), 1.0)
    return {"words": WEIGHTS["words"] / 2 * shared, "meaning": WEIGHTS["words"] / 2 * like}


def _asked(query: str) -> frozenset[str]:
    """The attributes that a query names, or is a statement about."""
    plain = normal_form(query)
    named = {attribute for name, attribute in ATTRIBUTES.items() if f" {name} " in f" {plain} "}
    statement = read(query)
    return frozenset(named | {statement.attribute} - {"", "likes", "dislikes"})
