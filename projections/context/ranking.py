"""Which facts a next decision is likely to need: a score a value, from value-free statistics and the task's own past.

    shape     ids more than dates, dates more than numbers, all of them more than flags; a field of many records is a
              choice of one among them, so each of its values less
    flows     how often this tool's field became an argument in earlier results, which outweighs the shape as it is seen
    wanted    the field has the words of a parameter
    used      a call or decision of this task used the value before
    recency   by how many cards ago it was mentioned last, never by a clock
    mode      what kind of work it is for raises the forms that it lives on

A value that several cards mention counts once, where it was mentioned last, with the best of its scores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from projections.cards.facts import Fact
from projections.cards.needs import readings
from projections.cards.values import of_text
from projections.context.sources import Needs, Source

WEIGHT_USED = 1.0
WEIGHT_WANTED = 0.2
WEIGHT_WORTH = 0.005
"""For each point of the card's value, at most ``MOST_WORTH`` of them."""
MOST_WORTH = 20
SEEN_ENOUGH = 5.0
"""Results after which what was seen of a field weighs as much as its shape."""
FADING = 0.98
"""What a score keeps for each later card."""
REPLACED = 0.3
"""What a score keeps when a later card replaced this one."""
ALTERNATIVES = 4.0
"""Records from which on a field counts as a choice among them."""

MODES: Mapping[str, Mapping[str, float]] = {
    "precise_planning": {"id": 1.5, "day": 1.5, "moment": 4.0, "number": 1.2},
    "information_gathering": {"name": 1.5, "prose": 2.0},
    "creative": {"name": 1.5, "prose": 3.0, "id": 0.5, "number": 0.5},
}
"""What a mode makes of the forms: a factor each."""

_NO_MODE: Mapping[str, float] = {}
_FLAG = re.compile(r"true|false|null|none|yes|no|", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{4}年\d{1,2}月\d{1,2}日")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ].*|\d{1,2}:\d{2}.*")
_NUMBER = re.compile(r"[-+]?[\d,]+(?:\.\d+)?")
_ID = re.compile(r"(?=.*\d)[\w@./:#+-]*[\w@/_-][\w@./:#+-]*|[A-Z][A-Z0-9_-]{3,}|[\w.+-]+@[\w.-]+", re.ASCII)
NAME = 40
"""Longest text that is a name or a title; a longer one is prose, and worth what values it holds. In characters."""


class Ranked(NamedTuple):
    """A value that may be chosen: the card and fact that mention it last, and what speaks for it."""

    score: float
    source: int
    fact: int


def rank(sources: Sequence[Source], needs: Needs) -> list[Ranked]:
    """The values of all sources (the latest last), the most likely first; equal scores in the order of the log."""
    best: dict[object, Ranked] = {}
    last = len(sources) - 1
    for place, source in enumerate(sources):
        records = _records(source.facts)
        for index, fact in enumerate(source.facts):
            identity = _identity(place, fact)
            score = _score(source, fact, records[fact.field], needs) * float(FADING ** (last - place))
            before = best.pop(identity, None)
            best[identity] = Ranked(score if before is None else max(score, before.score), place, index)
    return sorted(best.values(), key=lambda one: (-one.score, one.source, one.fact))


def telling(text: str) -> bool:
    """Whether a value says something by itself: longer than two characters (one, where it is no ASCII), and no flag."""
    return len(text) > (2 if text.isascii() else 1) and not _FLAG.fullmatch(text)


def _identity(place: int, fact: Fact) -> object:
    """What makes two facts one: the same text, where it tells by itself; else the same field of the same card, too."""
    return fact.text if telling(fact.text) else (place, fact.field, fact.text)


def _records(facts: Sequence[Fact]) -> Counter[str]:
    """In how many records of a card each field stands."""
    return Counter(field for field, _ in {(fact.field, fact.record) for fact in facts})


def _score(source: Source, fact: Fact, records: int, needs: Needs) -> float:
    chance = shape(fact.text, needs.mode) * sqrt(ALTERNATIVES / (ALTERNATIVES - 1 + records))
    seen, became = needs.rates.get((source.title, fact.field), (0, 0))
    chance = (became + SEEN_ENOUGH * chance) / (seen + SEEN_ENOUGH)
    score = chance + source.relevance + WEIGHT_WORTH * min(source.worth, MOST_WORTH)
    if needs.wanted and not needs.wanted.isdisjoint(readings(fact.field)):
        score += WEIGHT_WANTED
    if needs.used and not needs.used.isdisjoint(_values(fact.text)):
        score += WEIGHT_USED
    return score * REPLACED if source.replaced_by else score


def shape(text: str, mode: str = "") -> float:
    """How likely a value of this form is to be used, before anything is known of its field: 0 to 1."""
    form, likely = _form(text)
    return min(1.0, likely * MODES.get(mode, _NO_MODE).get(form, 1.0))


@lru_cache(maxsize=32_768)
def _form(text: str) -> tuple[str, float]:
    if not telling(text):
        return "flag", 0.01
    if _DAY.fullmatch(text):
        return "day", 0.25
    if _MOMENT.fullmatch(text):
        return "moment", 0.05
    if _NUMBER.fullmatch(text):
        return "number", 0.1 if len(text) < 5 else 0.25
    if _ID.fullmatch(text):
        return "id", 0.3
    return ("name", 0.2) if len(text) <= NAME else ("prose", 0.05 * min(1 + len(_values(text)), 4))


@lru_cache(maxsize=16_384)
def _values(text: str) -> tuple[str, ...]:
    """The values in a text, in normal form."""
    return tuple(of_text(text))
