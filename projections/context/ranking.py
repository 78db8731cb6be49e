"""Which facts a next decision is likely to need: a score a value, from value-free statistics and the task's own past.

    shape     ids more than dates, dates more than numbers, all of them more than flags; a field of many records is a
              choice of one among them, so each of its values less; a sentence by the values that are told only there
    flows     how often this tool's field became an argument after earlier results, which outweighs the shape in time
    wanted    the field has the words of a parameter
    used      a call or decision of this task used the value before
    recency   by how many cards ago it was mentioned last, never by a clock; what came last is what comes next
    mode      what kind of work it is for raises the forms that it lives on

A value that several cards mention counts once, where it was mentioned first, with the best of its scores: so it stands
among the others of that card, and needs no heading of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from projections.cards.facts import Fact
from projections.cards.needs import readings
from projections.context.shapes import is_prose, sentence, shape, telling, values_of
from projections.context.sources import Needs, Source

WEIGHT_USED = 1.0
WEIGHT_WANTED = 0.2
WEIGHT_WORTH = 0.005
"""For each point of the card's value, at most ``MOST_WORTH`` of them."""
MOST_WORTH = 20
SEEN_ENOUGH = 5.0
"""Results after which what was seen of a field weighs as much as its shape."""
WEIGHT_LATEST = 0.06
"""Of every fact of the latest card."""
FADING = 0.98
"""What a score keeps for each later card."""
REPLACED = 0.3
"""What a score keeps when a later card replaced this one."""
SHARED = 0.5
"""How far the records of a result share what was seen of their field: 0 not at all, 1 one of them is meant."""
ALTERNATIVES = 4.0
"""Records from which on a field counts as a choice among them."""


class Ranked(NamedTuple):
    """A value that may be chosen: the card and fact that mention it first, and what speaks for it."""

    score: float
    source: int
    fact: int


def rank(sources: Sequence[Source], needs: Needs) -> list[Ranked]:
    """The values of all sources (the latest last), the most likely first; equal scores in the order of the log."""
    best: dict[object, Ranked] = {}
    last, scores = len(sources) - 1, _Scores(sources, needs)
    for place, source in enumerate(sources):
        records = _records(source.facts)
        for index, fact in enumerate(source.facts):
            identity = _identity(place, fact)
            score = scores.of(source, fact, records[fact.field]) * float(FADING ** (last - place))
            score += WEIGHT_LATEST if place == last else 0.0
            before = best.get(identity)
            if before is None or (sources[before.source].replaced_by and not source.replaced_by):
                best[identity] = Ranked(score if before is None else max(score, before.score), place, index)
            elif score > before.score:
                best[identity] = before._replace(score=score)
    return sorted(best.values(), key=lambda one: (-one.score, one.source, one.fact))


class _Scores:
    """What speaks for the facts of some sources."""

    def __init__(self, sources: Sequence[Source], needs: Needs) -> None:
        self._needs = needs
        self._in_fields = {
            value
            for source in sources
            for fact in source.facts
            if not is_prose(fact.field, fact.text)
            for value in values_of(fact.field, fact.text)
        }

    def of(self, source: Source, fact: Fact, records: int) -> float:
        """The score of a fact, its age apart. ``records``: of the card, with this field."""
        needs = self._needs
        values = values_of(fact.field, fact.text)
        if is_prose(fact.field, fact.text):
            values = tuple(value for value in values if value not in self._in_fields)
            chance = sentence(len(values), needs.mode)
        else:
            chance = shape(fact.text, needs.mode) * sqrt(ALTERNATIVES / (ALTERNATIVES - 1 + records))
        seen, became = needs.rates.get((source.title, _counted_as(fact)), (0, 0))
        chance = (became / float(records**SHARED) + SEEN_ENOUGH * chance) / (seen + SEEN_ENOUGH)
        score = chance + source.relevance + WEIGHT_WORTH * min(source.worth, MOST_WORTH)
        if needs.wanted and not needs.wanted.isdisjoint(readings(fact.field)):
            score += WEIGHT_WANTED
        if needs.used and not needs.used.isdisjoint(values):
            score += WEIGHT_USED
        return score * REPLACED if source.replaced_by else score


def _identity(place: int, fact: Fact) -> object:
    """What makes two facts one: the same text, where it tells by itself; else the same field of the same card, too."""
    return fact.text if telling(fact.text) else (place, fact.field, fact.text)


def _counted_as(fact: Fact) -> str:
    """The field that a fact was counted under: what tells its object's key (``7.id: 7``) was met as that key first."""
    above, keyed, _ = fact.field.rpartition(".*.")
    return above if keyed and fact.record.endswith(f".{fact.text}") else fact.field


def _records(facts: Sequence[Fact]) -> Counter[str]:
    """In how many records of a card each field stands."""
    return Counter(field for field, _ in {(fact.field, fact.record) for fact in facts})
