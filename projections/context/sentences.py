"""Which sentences of prose results are told whole, before the rest of what they tell is told by phrases.

Behind the words before it a value is told at less cost, in its sentence it is understood at once. So the sentences that
tell much of what is likely needed come whole as far as a share of the budget goes, and what is left in ``phrases``. A
sentence that holds three likely values costs once, and much of what it costs its phrases would have cost anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from projections.context.phrases import phrases_before
from projections.context.ranking import Ranked
from projections.context.shapes import is_prose
from projections.context.sources import PERSON, Source
from projections.context.tokens import weigh

SHARE = 4.0
"""Most of a budget that goes into whole sentences, over the part of all there is that the budget has room for: where it
holds a tenth of all, 0.4 of it, since there each sentence takes the place of more; ``MOST`` where it holds a sixth. Of
that, as much as prose has a part in what is likely (its third root: a little of it has room for a sentence, too)."""

MOST = 0.7
"""Most of any budget: there are values left that only phrases have room for."""

LEAST = 2.0
"""Tokens that a sentence costs more than its phrases, at least."""


class Whole(NamedTuple):
    """Sentences that tell ranked values, the best first; ``part`` of all that is likely is what they tell, 0 to 1."""

    sentences: list[Ranked]
    part: float


def room(sources: Sequence[Source], budget: int, part: float = 1.0) -> float:
    """Tokens of a budget that whole sentences may take when they tell a part of what is likely."""
    every = sum(weigh(fact.text) for source in sources for fact in source.facts)
    return float(round(part ** (1 / 3), 6)) * budget * min(MOST, SHARE * budget / max(1.0, every))


def whole(sources: Sequence[Source], ranked: Sequence[Ranked]) -> Whole:
    """The sentences of results that tell ranked values, those first that tell the most for what they cost besides.

    ``sources`` are ``phrased``, ``ranked`` the scores of their facts. What a person said is no result: the latest
    messages stand before a model anyway.
    """
    held = {
        (place, phrase): index
        for place, source in enumerate(sources)
        if source.title != PERSON
        for index, fact in enumerate(source.facts)
        if not fact.field and is_prose(fact.field, fact.text)
        for phrase in phrases_before(source.facts, index)
    }
    likely: dict[tuple[int, int], float] = {}
    saved: dict[tuple[int, int], float] = {}
    for score, place, index in ranked:
        if (place, index) in held:
            sentence = place, held[place, index]
            likely[sentence] = likely.get(sentence, 0.0) + score
            saved[sentence] = saved.get(sentence, 0.0) + weigh(sources[place].facts[index].text)
    found = [
        Ranked(score / max(LEAST, weigh(sources[place].facts[index].text) - saved[place, index]), place, index)
        for (place, index), score in likely.items()
    ]
    found.sort(key=lambda one: (-one.score, one.source, one.fact))
    return Whole(found, sum(likely.values()) / max(1e-9, sum(one.score for one in ranked)))
