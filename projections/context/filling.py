"""Cards under a budget of tokens: records kept together while they fit, values by field when they do not, and only the
likely ones when even those are too many.

While everything fits, the cards stand as rows in the order of the log, so that a new one is added at the end and
nothing before it moves. Then the oldest are compressed, ``BLOCK`` at a time, each value told where it came up first.
Only when all cards compressed are too large, values are chosen by ``ranking``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from projections.context.ranking import rank
from projections.context.rendering import compressed, heading, labels_of, rows
from projections.context.sources import Needs, Source
from projections.context.tokens import count, weigh

BLOCK = 4
"""Cards that are compressed at once."""

LISTED = "(by field, each value once: lists side by side are no rows)"
"""Stands before cards that are not rows, since readers would take the lists for columns."""

NOTED = 256
"""Tokens from which on a budget has room for that note; within less, it would cost values, and lists are short."""

SEPARATOR, LINE, NOTE = weigh(", "), weigh("\n"), weigh(LISTED) + weigh("\n")

Chosen = dict[int, set[int]]
"""Source -> facts of it that are told."""


class Filled(NamedTuple):
    """The text of the cards, which facts of which it tells, and the tokens it takes."""

    text: str
    chosen: Chosen
    tokens: int


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
        filled = _joined([*_noted(small[:boundary], budget), *later], chosen)
        if filled.tokens <= budget:
            return filled
    return _likely(sources, needs, budget)


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
        if total + (_note(budget) if place else 0) <= budget and (place % BLOCK == 0 or place == len(sizes)):
            return place
        if place < len(sizes):
            total += sizes[place] - whole[place]
    return None


def _likely(sources: Sequence[Source], needs: Needs, budget: int) -> Filled:
    """The most likely values that fit, by field."""
    ranked = rank(sources, needs)
    chosen: Chosen = {}
    fields: set[tuple[int, str]] = set()
    labels = [labels_of(tuple({fact.field: None for fact in source.facts})) for source in sources]
    order: list[tuple[int, int]] = []
    size = _note(budget)
    for _, place, index in ranked:
        fact = sources[place].facts[index]
        cost = weigh(fact.text) + SEPARATOR
        if (place, fact.field) not in fields:
            cost += weigh(labels[place][fact.field]) + LINE
        if place not in chosen:
            cost += weigh(heading(sources[place], sources[place].about)) + LINE
        if size + cost <= budget:
            size += cost
            fields.add((place, fact.field))
            chosen.setdefault(place, set()).add(index)
            order.append((place, index))
    return _trimmed(sources, chosen, order, budget)


def _trimmed(sources: Sequence[Source], chosen: Chosen, order: list[tuple[int, int]], budget: int) -> Filled:
    """The chosen values as text; the least likely go until it fits, since sizes were estimated part by part."""
    while True:
        told = {place: chosen[place] for place in sorted(chosen) if chosen[place]}
        filled = _joined(_noted([compressed(sources[place], facts) for place, facts in told.items()], budget), told)
        if filled.tokens <= budget or not order:
            return filled
        for place, index in order[-max(1, len(order) // 50) :]:
            chosen[place].discard(index)
        del order[-max(1, len(order) // 50) :]


def _noted(compressed_cards: Sequence[str], budget: int) -> list[str]:
    """Compressed cards, with the note on how to read them before the first."""
    return [LISTED, *compressed_cards] if any(compressed_cards) and _note(budget) else list(compressed_cards)


def _note(budget: int) -> float:
    """Tokens of the note; 0 where it is left out."""
    return NOTE if budget >= NOTED else 0


def _joined(texts: Iterable[str], chosen: Chosen) -> Filled:
    text = "\n".join(text for text in texts if text)
    return Filled(text, chosen, count(text))
