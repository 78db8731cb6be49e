"""Memories by what they say: words with their synonyms, the slot that a query asks for, importance. Pure.

Scores are finite and 0..1 for any query, and the order is total. A query without words lists by importance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from projections.memory.normal import normal_form
from services.curation.lexicon import ATTRIBUTES
from services.curation.statements import read, words_of

WEIGHTS = {"words": 0.6, "phrase": 0.15, "slot": 0.15, "importance": 0.1}
"""What each signal adds to the score, at most."""

LONGEST_QUERY = 2_000


class Hit(NamedTuple):
    """A memory's document, its score, and what each signal added to it."""

    memory: dict[str, Any]
    score: float
    signals: dict[str, float]


def rank(memories: Sequence[dict[str, Any]], query: str) -> list[Hit]:
    """Memories that share something with the query, the best first; with an empty query all of them."""
    text = query[:LONGEST_QUERY]
    wanted, phrase = words_of(normal_form(text)), normal_form(text)
    asked = _asked(text)
    said = [words_of(f"{one['content']} {one.get('entity', '')} {one.get('attribute', '')}") for one in memories]
    spread = Counter(word for words in said for word in words & wanted)
    weight = {word: math.log(1 + len(memories) / (1 + spread[word])) + 0.1 for word in wanted}
    total = sum(weight.values())
    hits = []
    for memory, words in zip(memories, said, strict=True):
        shared = sum(weight[word] for word in words & wanted) / total if total else 0.0
        signals = {
            "words": WEIGHTS["words"] * shared,
            "phrase": WEIGHTS["phrase"] * bool(phrase and phrase in normal_form(memory["content"])),
            "slot": WEIGHTS["slot"] * bool(asked and memory.get("attribute", "").partition("@")[0] in asked),
        }
        if not wanted or any(signals.values()):
            signals["importance"] = WEIGHTS["importance"] * memory["importance"]
            hits.append(Hit(memory, round(sum(signals.values()), 6), signals))
    return sorted(hits, key=lambda hit: (-hit.score, hit.memory["scope"], hit.memory["memory"]))


def _asked(query: str) -> frozenset[str]:
    """The attributes that a query names, or is a statement about."""
    plain = normal_form(query)
    named = {attribute for name, attribute in ATTRIBUTES.items() if f" {name} " in f" {plain} "}
    statement = read(query)
    return frozenset(named | {statement.attribute} - {"", "likes", "dislikes"})
