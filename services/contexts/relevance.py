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
from functools import lru_cache
from typing import Any

from projections.memory.normal import normal_form
from services.curation.search import LONGEST_QUERY, rank
from services.curation.statements import words_of

RELEVANCE = 0.25
"""Least relevance (0..1) of a memory that a query brings: one word of four. A line too many costs little."""
RANKED = 100
"""Memories that are ranked: those that share most; and as many of those that are known to be about something."""


def relevant(memories: Sequence[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    """The memories that a query brings, the best first."""
    wanted = words_of(normal_form(query[:LONGEST_QUERY]))
    if not wanted:
        return []
    spread = Counter(word for one in memories for word in _words(one["content"]))
    weight = {word: math.log(1 + len(memories) / spread[word]) for word in spread}
    rare = max(weight.values(), default=1.0)
    shared = [_shared(_words(one["content"]), wanted, weight, rare) for one in memories]
    likely = sorted(range(len(memories)), key=lambda place: -shared[place])[:RANKED]
    known = {*likely}
    slots = [place for place, one in enumerate(memories) if one.get("attribute") and place not in known][:RANKED]
    near = {(one["scope"], one["memory"]): shared[place] for place in likely + slots for one in [memories[place]]}
    found = []
    for hit in rank([memories[place] for place in likely + slots], query):
        certain = hit.signals["slot"] or hit.signals["phrase"]
        if certain or near[hit.memory["scope"], hit.memory["memory"]] >= RELEVANCE:
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
    smaller = min(sum(weight[word] for word in said), sum(weight.get(word, rare) for word in wanted))
    return sum(weight[word] for word in both) / smaller if smaller else 0.0
