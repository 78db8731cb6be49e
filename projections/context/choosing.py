"""The likely facts under a budget that cannot hold all: by field, each value once, below the cards that tell them; in a
tight budget, where headings of cards would cost more than they tell, all cards as one.

Sentences of results that tell much of what is likely come whole in a share of the budget (``sentences``); values of the
others stand behind the words before them (``phrases``). A sentence that is chosen takes the place of its own phrases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from projections.cards.reading.facts import Fact
from projections.context.phrases import labels, phrased, phrases_before
from projections.context.ranking import Ranked, rank
from projections.context.rendering import by_field, compressed, heading
from projections.context.sentences import room, whole
from projections.context.shapes import is_prose
from projections.context.sources import PERSON, Needs, Source
from projections.context.tokens import count, weigh

LISTED = "(by field, each value once: lists side by side are no rows)"
"""Stands before cards that are not rows, since readers would take the lists for columns."""

NOTED = 256
"""Tokens from which on a budget has room for that note; within less, it would cost values, and lists are short."""

HEADINGS = 0.2
"""Most of a budget that may go into headings; when they would take more, there are none."""

ROUNDS = 3
"""How often what was taken is made to text, to see how much room is left: sizes are estimated part by part."""

SEPARATOR, LINE, NOTE = weigh(", "), weigh("\n"), weigh(LISTED) + weigh("\n")

Chosen = dict[int, set[int]]
"""Source -> facts of it that are told."""


class Filled(NamedTuple):
    """The text of the cards, which facts of which it tells, and the tokens it takes."""

    text: str
    chosen: Chosen
    tokens: int


def likely(sources: Sequence[Source], needs: Needs, budget: int) -> Filled:
    """The most likely facts of the sources (the latest last) in at most ``budget`` tokens."""
    choice = _Choice(phrased(sources), budget)
    left = rank(choice.sources, needs)
    sentences, part = whole(choice.sources, left)
    share = room(sources, budget, part)
    for one in sentences:
        choice.take(one, share)
    for _ in range(ROUNDS):
        left = [one for one in left if not choice.take(one, budget)]
        filled = choice.filled()
        choice.measured(filled.tokens)
    return filled


class _Choice:
    """Facts that were taken so far, and their size, part by part."""

    def __init__(self, sources: Sequence[Source], budget: int) -> None:
        self.sources, self._budget = sources, budget
        self._labels = [labels(source) for source in sources]
        self._headings = [weigh(heading(source, source.about)) + LINE for source in sources]
        self._as_one = sum(self._headings) > HEADINGS * budget
        self._size = 0 if self._as_one else note(budget)
        self._chosen: Chosen = {}
        self._order: list[tuple[int, int]] = []
        self._named: set[tuple[int, str]] = set()
        self._whole: set[tuple[int, str]] = set()

    def measured(self, tokens: int) -> None:
        """So many tokens are what was taken, as text."""
        self._size = tokens

    def take(self, one: Ranked, budget: float) -> bool:
        """Take a fact if a budget has room for it besides what was taken before; whether it is told now."""
        place, index = one.source, one.fact
        source, taken = self.sources[place], self._chosen.get(place, set())
        fact = source.facts[index]
        prose, instead = is_prose(fact.field, fact.text), set[int]()
        if index in taken:
            return True
        if prose:
            instead = taken.intersection(phrases_before(source.facts, index))
        elif (place, fact.record) in self._whole:
            return True
        named = (-1 if self._as_one else place, self._label(place, fact))
        size = self._size + weigh(fact.text) + SEPARATOR
        size -= sum(weigh(source.facts[phrase].text) + SEPARATOR for phrase in instead)
        size += 0 if named in self._named else weigh(named[1]) + LINE
        size += 0 if taken or self._as_one else self._headings[place]
        if size > budget:
            return False
        self._size = size
        self._named.add(named)
        self._chosen[place] = taken - instead | {index}
        self._order.append((place, index))
        if prose:
            self._whole.add((place, fact.record))
        return True

    def filled(self) -> Filled:
        """What was taken as text; the least likely go until it fits, since sizes were estimated part by part."""
        while True:
            told = {place: self._chosen[place] for place in sorted(self._chosen) if self._chosen[place]}
            filled = joined(self._lines(told), told)
            if filled.tokens <= self._budget or not self._order:
                return filled
            for place, index in self._order[-max(1, len(self._order) // 50) :]:
                self._chosen[place].discard(index)
            del self._order[-max(1, len(self._order) // 50) :]

    def _lines(self, told: Chosen) -> Iterable[str]:
        if not self._as_one:
            return noted([compressed(self.sources[place], facts) for place, facts in told.items()], self._budget)
        facts = ((place, self.sources[place].facts[index]) for place in told for index in sorted(told[place]))
        return by_field((self._label(place, fact), fact.text) for place, fact in facts)

    def _label(self, place: int, fact: Fact) -> str:
        """What a value is told behind: its field, or where it has none (a list of paths) and no heading, its tool."""
        title = self.sources[place].title
        if fact.field or not self._as_one or title == PERSON or is_prose("", fact.text):
            return self._labels[place][fact.field]
        return title


def noted(cards: Sequence[str], budget: int) -> list[str]:
    """Compressed cards, with the note on how to read them before the first."""
    return [LISTED, *cards] if any(cards) and note(budget) else list(cards)


def note(budget: int) -> float:
    """Tokens of the note; 0 where it is left out."""
    return NOTE if budget >= NOTED else 0


def joined(texts: Iterable[str], chosen: Chosen) -> Filled:
    """Texts line by line, without those that are empty."""
    text = "\n".join(text for text in texts if text)
    return Filled(text, chosen, count(text))
