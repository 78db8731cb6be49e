"""Which facts a next decision is likely to need: what is learned of calls, times what the task itself says.

    expected  how likely the next call takes a value of this field, by what followed the last call before
              (``expecting``); while little is learned, the form counts: ids more than dates, dates more than numbers
    among     a field of many records is a choice of one among them, so each of its values is less likely
    said      the latest messages name the value, or another one of its record
    asked     the question of the context has a word of the field's name
    used      a call or decision of this task used the value before: of many, it is the one it is about; and as long as
              little is learned of which calls follow which, what was used is used again
    wanted    the field has the words of a parameter; this, too, only as long as little is learned
    excluded  its record says that it is no choice: sold out, not available
    replaced  a later card says otherwise

What speaks for a value is multiplied, as odds are: the factors were fitted by logistic regression to calls of recorded
and made-up runs, and rounded. A value that several cards mention counts once, with the best of its scores, where it
stands behind a name first: so it stands among the others of that card, and needs no heading of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from projections.bounds import clip
from projections.cards.needs import SAYS_NOTHING, readings, words
from projections.cards.reading.facts import Fact
from projections.cards.reading.phrases import AS_TOLD, counted_as, phrases
from projections.cards.rules import excludes
from projections.context.rendering import row_of
from projections.context.shapes import NAME, is_prose, names_a_thing, sentence, shape, telling, values_of
from projections.context.sources import PERSON, Needs, Source

SMOOTHING = 5.0
"""Calls after which what was learned weighs as much as the shape of a value."""
TAKEN = 0.5
"""How likely a call takes a value whose shape speaks for it wholly."""
CHOICE = 0.7
"""How far the records of a result share the chance of their field: 0 not at all, 1 one of them is meant."""
SAID, BESIDE = 12.0, 5.0
"""Factors of a value that the latest messages name, and of those that stand in its record."""
ASKED = 6.0
"""Factor of a value whose field has a name that the question of the context has, too."""
MAX_QUESTION = 2_000
"""Of a longer question, so many characters are compared with names of fields."""
USED = 3.0
"""Factor of a value that was used before, where its field has others."""
USED_AGAIN, WANTED = 4.0, 2.0
"""Factors of a value that was used before, and of one that a parameter asks for, while nothing is learned."""
WORTH, MOST_WORTH = 0.005, 20
"""What each point of the card's value adds to a factor, and points that count at most."""
FORM = 0.3
"""Power of what the form of a value says, beside what was learned: of equal chances an id goes before a flag."""
PROSE = 0.03
"""Factor of a sentence of which values are told without it, behind the words before them, at a part of its cost."""
PERSONS = 0.3
"""Factor of what a person said: the latest of it stands before a model anyway."""
PHRASED = 0.3
"""What a sentence's chance keeps when the things that it names are told without it."""
REPLACED = 0.3
"""What a score keeps when a later card replaced this one."""
EXCLUDED = 0.5
"""What a score keeps when its record is no choice."""

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
    scores = _Scores(sources, needs)
    for place, source in enumerate(sources):
        records = _Records(source.facts, needs.said)
        for index, fact in enumerate(source.facts):
            identity = _identity(place, fact)
            score = scores.of(source, fact, records)
            before = best.get(identity)
            if before is None or _tells_less(sources, before, fact, source):
                best[identity] = Ranked(score if before is None else max(score, before.score), place, index)
            elif score > before.score:
                best[identity] = before._replace(score=score)
    return sorted(best.values(), key=lambda one: (-one.score, one.source, one.fact))


class _Scores:
    """What speaks for the facts of some sources."""

    def __init__(self, sources: Sequence[Source], needs: Needs) -> None:
        self._needs = needs
        self._question = clip(needs.asked, MAX_QUESTION)
        self._asked = frozenset(words(self._question))
        self._new = SMOOTHING / (SMOOTHING + needs.calls)  # how little is learned: 1 nothing, 0 all there is
        self._again, self._wanted = _power(USED_AGAIN, self._new), _power(WANTED, self._new)
        self._in_fields = {
            value
            for source in sources
            for fact in source.facts
            if not is_prose(fact.field, fact.text)
            for value in values_of(fact.field, fact.text)
        }

    def of(self, source: Source, fact: Fact, records: _Records) -> float:
        """The score of a fact."""
        needs, among, new = self._needs, records.of[fact.field], self._new
        values, prior = self._told(fact)
        score = (1 - new) * self._expected(source.title, fact) + new * TAKEN * prior
        score *= _power(prior, FORM) * _power(among, -CHOICE) * records.said(fact)
        score *= PERSONS if source.title == PERSON else 1.0
        if is_prose(fact.field, fact.text) and (source.title == PERSON or phrases(fact.text)):
            score *= PROSE
        if needs.used and not needs.used.isdisjoint(values):
            score *= (USED if among > 1 else 1.0) * self._again
        if needs.wanted and not needs.wanted.isdisjoint(readings(fact.field)):
            score *= self._wanted
        if self._asked and self._is_asked(fact):
            score *= ASKED
        if row_of(fact) in records.excluded:
            score *= EXCLUDED
        score *= 1.0 + source.relevance + (WORTH * min(source.worth, MOST_WORTH) if values else 0.0)
        return score * REPLACED if source.replaced_by else score

    def _told(self, fact: Fact) -> tuple[tuple[str, ...], float]:
        """The values that a fact tells, and what its form alone says of it."""
        values, mode = values_of(fact.field, fact.text), self._needs.mode
        if not is_prose(fact.field, fact.text):
            return values, shape(fact.text, mode)
        values = tuple(value for value in values if value not in self._in_fields)
        if not any(map(names_a_thing, values)) and any(names_a_thing(value) for _, value in phrases(fact.text)):
            return values, sentence(0, mode) * PHRASED
        return values, sentence(len(values), mode)

    def _is_asked(self, fact: Fact) -> bool:
        """Whether the question has a telling word of the field's own name; where words have no spaces, anywhere."""
        own = words(fact.field.rpartition(".")[2])
        names = [word for word in own if word not in SAYS_NOTHING and (len(word) > 2 or not word.isascii())]
        return any(word in self._asked or (not word.isascii() and word in self._question) for word in names)

    def _expected(self, tool: str, fact: Fact) -> float:
        return next((found for place in places(tool, fact) if (found := self._needs.expected.get(place))), 0.0)


def _power(base: float, exponent: float) -> float:
    """Rounded: powers differ in their last bit between machines, and a context may be made again on another one."""
    return float(round(base**exponent, 6))


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
        """The factor of a fact by what the latest messages say."""
        if not self._said or is_prose(fact.field, fact.text):
            return 1.0
        return SAID if self._says(fact) else BESIDE if row_of(fact) in self.named else 1.0

    def _says(self, fact: Fact) -> bool:
        return len(fact.text) <= NAME and telling(fact.text) and fact.text.casefold() in self._said


@lru_cache(maxsize=8_192)
def _excludes(field: str, text: str) -> bool:
    """Whether a fact says that its record is no choice."""
    if field.rpartition(".")[2].casefold() in _CHOICES:
        return text.casefold() in _NO
    return len(text) <= NAME and excludes(text) is not None


def _tells_less(sources: Sequence[Source], known: Ranked, fact: Fact, source: Source) -> bool:
    """Whether a value is told better by a fact than where it was found: by a card that stands, as a field of data."""
    before = sources[known.source]
    told = before.facts[known.fact].field
    return (not before.replaced_by, bool(told), AS_TOLD not in told) < (
        not source.replaced_by, bool(fact.field), AS_TOLD not in fact.field
    )  # fmt: skip


def _identity(place: int, fact: Fact) -> object:
    """What makes two facts one: the same text, where it tells by itself; else the same field of the same card, too."""
    return fact.text if telling(fact.text) else (place, fact.field, fact.text)


def places(tool: str, fact: Fact) -> Iterator[tuple[str, str]]:
    """(tool, field) that a fact was counted under when it was used: as data, or behind the words before it.

    What tells its object's key (``7.id: 7``) was met as that key first.
    """
    above, keyed, _ = fact.field.rpartition(".*.")
    yield tool, above if keyed and fact.record.endswith(f".{fact.text}") else fact.field
    yield from ((tool, name) for name in counted_as(fact.field))
