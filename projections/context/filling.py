"""Cards under a budget of tokens: records kept together while they fit, values by field when they do not, and only the
likely ones when even those are too many.

While everything fits, the cards stand as rows in the order of the log, so that a new one is added at the end and
nothing before it moves. Then the oldest are compressed, ``BLOCK`` at a time, each value told where it came up first.
Only when all cards compressed are too large, values are chosen (``choosing``) by how likely they are (``ranking``).
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.context.choosing import Chosen, Filled, joined, likely, note, noted
from projections.context.rendering import compressed, rows
from projections.context.sources import Needs, Source
from projections.context.tokens import weigh

BLOCK = 4
"""Cards that are compressed at once."""


def fill(sources: Sequence[Source], needs: Needs, budget: int) -> Filled:
    """The sources (the latest last) as text of at most ``budget`` tokens."""
    if budget <= 0 or not sources:
        return Filled("", {}, 0)
    every = _first_mentions(sources)
    full = [None if source.replaced_by else rows(source) for source in sources]
    small = [compressed(source, every[place]) if every.get(place) else "" for place, source in enumerate(sources)]
    boundary = _boundary(full, small, budget)
    if boundary is not None:
        chosen = {place: every.get(place, set()) for place in range(boundary)}
        for place in range(boundary, len(sources)):
            chosen[place] = set(every.get(place, ()) if full[place] is None else range(len(sources[place].facts)))
        later = [text or small[n] for n, text in enumerate(full) if n >= boundary]
        filled = joined([*noted(small[:boundary], budget), *later], chosen)
        if filled.tokens <= budget:
            return filled
    return likely(sources, needs, budget)


def _first_mentions(sources: Sequence[Source]) -> Chosen:
    """Each value once, where it came up first; a card that was replaced tells only what no other does."""
    order = sorted(range(len(sources)), key=lambda place: (bool(sources[place].replaced_by), place))
    told: set[str] = set()
    chosen: Chosen = {}
    for place in order:
        for index, fact in enumerate(sources[place].facts):
            if fact.text not in told:
                told.add(fact.text)
                chosen.setdefault(place, set()).add(index)
    return chosen


def _boundary(full: Sequence[str | None], small: Sequence[str], budget: int) -> int | None:
    """How many of the oldest cards are compressed so that all fit; None when no number is enough."""
    sizes = [weigh(text) + 1 for text in small]
    whole = [size if text is None else weigh(text) + 1 for text, size in zip(full, sizes, strict=True)]
    total = sum(whole)
    for place in range(len(sizes) + 1):
        if total + (note(budget) if place else 0) <= budget and (place % BLOCK == 0 or place == len(sizes)):
            return place
        if place < len(sizes):
            total += sizes[place] - whole[place]
    return None
