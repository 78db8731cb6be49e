"""Which memories a query brings into a context. Pure.

A memory is relevant as far as it and the query share words (``services.curation.search`` orders them): the weight of
the shared words over that of the smaller of the two, so that neither a long question nor a long memory hides what they
have in common; words that many memories have weigh little. Where a model tells that they mean about the same, that is
enough. Where the query names what a memory is about ("seat"), or repeats it, it is relevant anyway.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from projections.memory.normal import normal_form
from projections.retrieval.likeness import LEAST_MEANING
from services.curation.search import LONGEST_QUERY, rank
from services.curation.statements import words_of

RELEVANCE = 0.25
"""Least relevance (0..1) of a memory that a query brings: one word of four. A line too many costs little."""
RANKED = 100
"""Memories that are ranked: those that share most; and as many of those that are known to be about something."""


def relevant(
    memories: Sequence[dict[str, Any]], query: str, meaning: Mapping[int, float] | None = None
) -> list[dict[str, Any]]:
    """The memories that a query brings, the best first.

    ``meaning``: the cosine of the query and the memory at each place, where it is known.
    """
    wanted = words_of(normal_form(query[:LONGEST_QUERY]))
    if not wanted:
        return []
    spread = Counter(word for one in memories for word in _words(one["content"]))
    weight = {word: math.log(1 + len(memories) / spread[word]) for word in spread}
    rare = max(weight.values(), default=1.0)
    cosines = meaning or {}
    like = {place: cosine for place, cosine in cosines.items() if cosine >= LEAST_MEANING}
    shared = [_shared(_words(one["content"]), wanted, weight, rare) for one in memories]
    near = [max(shared[place], like.get(place, 0.0)) for place in range(len(memories))]
    chosen = sorted(range(len(memories)), key=lambda place: -near[place])[:RANKED]
    others = {*range(len(memories))} - {*chosen}
    chosen += [place for place in sorted(others) if memories[place].get("attribute")][:RANKED]
    by_name = {(memories[place]["scope"], memories[place]["memory"]): place for place in chosen}
    known = {number: cosines[place] for number, place in enumerate(chosen) if place in cosines}
    found = []
    for hit in rank([memories[place] for place in chosen], query, known):
        certain = hit.signals["slot"] or hit.signals["phrase"]
        place = by_name[hit.memory["scope"], hit.memory["memory"]]
        if certain or place in like or shared[place] >= RELEVANCE:
            found.append(hit.memory)
    return found


@lru_cache(maxsize=16_384)
def _words(content: str) -> frozenset[str]:
    return words_of(normal_form(content))


def _shared(said: frozenset[str], wanted: frozenset[str], weight: Mapping[str, float], rare: float) -> float:
    """The weight of what both have, over that of the smaller one; a word that no memory has weighs as a rare one."""
    both = said & wanted
    if not both:
        return 0.0
    # exact sums: the order of a set of words is another one in each process
    smaller = min(math.fsum(weight[word] for word in said), math.fsum(weight.get(word, rare) for word in wanted))
    return math.fsum(weight[word] for word in both) / smaller if smaller else 0.0
