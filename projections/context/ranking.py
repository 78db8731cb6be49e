"""Which facts a next decision is likely to need: a score a value, from value-free statistics and the task's own past.

    shape     ids more than dates, dates more than numbers, all of them more than flags; a field of many records is a
              choice of one among them, so each of its values less; a sentence by the values that are told only there
    flows     how often this tool's field became an argument after earlier results, which outweighs the shape in time
    wanted    the field has the words of a parameter
    used      a call or decision of this task used the value before
    said      the latest messages name the value, or another one of its record
    excluded  its record says that it is no choice: sold out, not available
    recency   by how many cards ago it was mentioned last, never by a clock; what came last is what comes next
    mode      what kind of work it is for raises the forms that it lives on

A value that several cards mention counts once, where it was mentioned first, with the best of its scores: so it stands
among the others of that card, and needs no heading of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from projections.cards.facts import Fact
from projections.cards.needs import readings
from projections.cards.rules import excludes
from projections.context.phrases import phrases
from projections.context.rendering import row_of
from projections.context.shapes import NAME, is_prose, names_a_thing, sentence, shape, telling, values_of
from projections.context.sources import Needs, Source

WEIGHT_USED = 1.0
WEIGHT_WANTED = 0.2
WEIGHT_WORTH = 0.005
"""For each point of the card's value, at most ``MOST_WORTH`` of them."""
MOST_WORTH = 20
SEEN_ENOUGH = 5.0
"""Results after which what was seen of a field weighs as much as its shape."""
WEIGHT_SAID, WEIGHT_BESIDE = 0.3, 0.1
"""Of a value that the latest messages name, and of those that stand in its record."""
LATEST = 1.6
"""What a score of the latest card becomes."""
FADING = 0.98
"""What a score keeps for each later card."""
PHRASED = 0.3
"""What a sentence's chance keeps when the things that it names are told without it."""
REPLACED = 0.3
"""What a score keeps when a later card replaced this one."""
EXCLUDED = 0.4
"""What a score keeps when its record is no choice."""
SHARED = 0.5
"""How far the records of a result share what was seen of their field: 0 not at all, 1 one of them is meant."""
ALTERNATIVES = 4.0
"""Records from which on a field counts as a choice among them."""

_CHOICES = frozenset(("available", "in_stock", "active", "allowed", "eligible", "enabled", "valid"))
_NO = frozenset(("false", "no", "0"))


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
        records = _Records(source.facts, needs.said)
        recency = float(FADING ** (last - place)) * (LATEST if place == last else 1.0)
        for index, fact in enumerate(source.facts):
            identity = _identity(place, fact)
            score = scores.of(source, fact, records) * recency + records.said(fact)
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

    def of(self, source: Source, fact: Fact, records: _Records) -> float:
        """The score of a fact, its age and the latest messages apart."""
        needs, among = self._needs, records.of[fact.field]
        values = values_of(fact.field, fact.text)
        if is_prose(fact.field, fact.text):
            values = tuple(value for value in values if value not in self._in_fields)
            chance = sentence(len(values), needs.mode)
            if not any(map(names_a_thing, values)) and any(names_a_thing(value) for _, value in phrases(fact.text)):
                chance = sentence(0, needs.mode) * PHRASED
        else:
            chance = shape(fact.text, needs.mode) * sqrt(ALTERNATIVES / (ALTERNATIVES - 1 + among))
        seen, became = needs.rates.get((source.title, _counted_as(fact)), (0, 0))
        chance = (became / float(among**SHARED) + SEEN_ENOUGH * chance) / (seen + SEEN_ENOUGH)
        score = chance + source.relevance + (WEIGHT_WORTH * min(source.worth, MOST_WORTH) if values else 0.0)
        if needs.wanted and not needs.wanted.isdisjoint(readings(fact.field)):
            score += WEIGHT_WANTED
        if needs.used and not needs.used.isdisjoint(values):
            score += WEIGHT_USED
        if row_of(fact) in records.excluded:
            score *= EXCLUDED
        return score * REPLACED if source.replaced_by else score


class _Records:
    """The records of a card.

    ``of``: in how many each field stands. ``excluded``: those that say they are no choice. ``named``: those of which
    the latest messages name something that no other has.
    """

    def __init__(self, facts: Sequence[Fact], said: str) -> None:
        self._said = said
        self.of = Counter(field for field, _ in {(fact.field, fact.record) for fact in facts})
        self.excluded = {row for fact in facts if _excludes(fact.field, fact.text) and (row := row_of(fact))}
        once = Counter((fact.field, fact.text) for fact in facts) if said else Counter[tuple[str, str]]()
        self.named = {row_of(fact) for fact in facts if once[fact.field, fact.text] == 1 and self._says(fact)} - {""}

    def said(self, fact: Fact) -> float:
        """What the latest messages add to a fact."""
        if not self._said or is_prose(fact.field, fact.text):
            return 0.0
        return WEIGHT_SAID if self._says(fact) else WEIGHT_BESIDE if row_of(fact) in self.named else 0.0

    def _says(self, fact: Fact) -> bool:
        return len(fact.text) <= NAME and telling(fact.text) and fact.text.casefold() in self._said


@lru_cache(maxsize=8_192)
def _excludes(field: str, text: str) -> bool:
    """Whether a fact says that its record is no choice."""
    if field.rpartition(".")[2].casefold() in _CHOICES:
        return text.casefold() in _NO
    return len(text) <= NAME and excludes(text) is not None


def _identity(place: int, fact: Fact) -> object:
    """What makes two facts one: the same text, where it tells by itself; else the same field of the same card, too."""
    return fact.text if telling(fact.text) else (place, fact.field, fact.text)


def _counted_as(fact: Fact) -> str:
    """The field that a fact was counted under: what tells its object's key (``7.id: 7``) was met as that key first."""
    above, keyed, _ = fact.field.rpartition(".*.")
    return above if keyed and fact.record.endswith(f".{fact.text}") else fact.field
