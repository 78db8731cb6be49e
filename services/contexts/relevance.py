"""Which memories a query brings into a context. Pure.

A memory is relevant as far as it and the query share words (``services.curation.search`` orders them): the weight of
the shared words over that of the smaller of the two, so that neither a long question nor a long memory hides what they
have in common; words that many memories have weigh little. Where the query names what a memory is about ("seat"), or
repeats it, it is relevant anyway.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.memory.normal import normal_form
from services.curation.search import LONGEST_QUERY, rank
from services.curation.statements import words_of

RELEVANCE = 0.25
"""Least relevance (0..1) of a memory that a query brings: one word of four. A line too many costs little."""


def relevant(memories: Sequence[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    """The memories that a query brings, the best first."""
    wanted = words_of(normal_form(query[:LONGEST_QUERY]))
    if not wanted:
        return []
    spread = Counter(word for one in memories for word in _words(one))
    weight = {word: math.log(1 + len(memories) / spread[word]) for word in spread}
    found = []
    for hit in rank(memories, query):
        certain = hit.signals["slot"] or hit.signals["phrase"]
        if certain or _shared(_words(hit.memory), wanted, weight) >= RELEVANCE:
            found.append(hit.memory)
    return found


def _words(memory: Mapping[str, Any]) -> frozenset[str]:
    return words_of(normal_form(memory["content"]))


def _shared(said: frozenset[str], wanted: frozenset[str], weight: Mapping[str, float]) -> float:
    """The weight of what both have, over that of the smaller one; a word that no memory has weighs as a rare one."""
    both = said & wanted
    rare = max(weight.values(), default=1.0)
    smaller = min(sum(weight[word] for word in said), sum(weight.get(word, rare) for word in wanted))
    return sum(weight[word] for word in both) / smaller if smaller else 0.0
