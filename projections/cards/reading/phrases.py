"""The values of a sentence, each with the words that it stands behind: what a field's name is in data.

    Slot FR-2K9 is on 2026-05-04 from 09:30, room 12b.     Slot: FR-2K9; is on: 2026-05-04; from: 09:30; room: 12b
    编号为P123，医保卡号YB456。                              编号为: P123; 医保卡号: YB456

The words before a value name it, up to ``MAX_WORDS`` of them (``MAX_LETTERS`` letters where words have no spaces), and
no further back than the punctuation before them. Values side by side (``orders: A1, A2 and A3``) share the words before
the first. A value that nothing stands before is told by its sentence alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

import regex

from projections.bounds import digest
from projections.cards.reading.facts import Fact
from projections.cards.reading.tokens import spans
from projections.cards.reading.values import in_field

AS_TOLD = "\x1f"
"""Ends a name that a value follows as in its sentence, without a colon."""

MAX_WORDS = 2
MAX_LETTERS = 4

MAX_SENTENCES = 64
"""Sentences of one result whose values are counted under the words before them, at most."""

SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}"
"""Letters of languages that put no spaces between words, as part of a set in a pattern."""

LONG = 80
"""Characters from which on the text of a field is prose."""

_NEXT_TO = regex.compile(r"[\s,;/、，；]*(?:(?:and|or|und|oder|y|o|et|ou|e|и|或|和|及|と)[\s])?[\s#$€£¥]*|[和或及と]")
_LEAD = regex.compile(
    rf"""(?: (?<![\w./\\-])
             (?P<words>[^\W\d_{SPACELESS}][\w'’-]*(?:[ ][^\W\d_{SPACELESS}][\w'’-]*){{0,{MAX_WORDS - 1}}})
           | (?P<letters>\p{{Han}}{{0,2}}[\p{{Katakana}}ー]{{2,12}} | [{SPACELESS}]{{1,{MAX_LETTERS}}}) )
        (?P<gap>[ :：=(（\[「『“"'`*#$€£¥№-]*)$""",
    regex.VERBOSE,
)
_LEADS = regex.compile(r"[ :：#(（]{1,3}")
_LAST = regex.compile(rf"(?:[{SPACELESS}]{{2}}|(?<=[ ])[^\s{AS_TOLD}]+)[ ]?{AS_TOLD}?$")
_WINDOW = 60
"""Code points before a value that are searched for words."""


@lru_cache(maxsize=16_384)
def phrases(sentence: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of each value of a sentence, in order (those that nothing stands before are left out).

    A name ends in ``AS_TOLD`` where the value follows it in the sentence with no more than a space between.
    """
    found: list[tuple[str, str]] = []
    places = list(spans(sentence))
    end, name = 0, ""
    for place, (start, stop, plain) in enumerate(places):
        next_one = places[place + 1][0] if place + 1 < len(places) else 0
        if plain and next_one and not sentence[start].isdigit() and _LEADS.fullmatch(sentence, stop, next_one):
            continue  # it names what follows
        before, value = sentence[max(end, start - _WINDOW) : start], sentence[start:stop]
        if plain and before == " " and found and found[-1][1].isdigit():
            found[-1] = (found[-1][0], f"{found[-1][1]} {value}")  # a house's number, and its street
            end = stop
            continue
        if not (name and end and _NEXT_TO.fullmatch(before)):
            name = _name(before)
        if name:
            found.append((name, value))
        end = stop if name or not plain else end
    return tuple(found)


def _name(before: str) -> str:
    """The words that end a text, as the name of what follows."""
    lead = _LEAD.search(before)
    if lead is None:
        return ""
    name = lead["words"] or lead["letters"]
    return f"{name}{lead['gap']}{AS_TOLD}" if lead["gap"] in ("", " ") else name


@lru_cache(maxsize=8_192)
def last_of(name: str) -> str:
    """The last word of a name of two, or the last two letters where words have no spaces."""
    word = _LAST.search(name)
    return word[0] if word else name


@lru_cache(maxsize=16_384)
def counted_as(name: str) -> tuple[str, ...]:
    """What the words before a value are counted as: digests, since names of people may be among them.

    The last of them counts by itself, too: the first may be another one each time (``Dr. Wu D-17``).
    """
    return tuple(dict.fromkeys(_counted(part) for part in (name, last_of(name))))


def _counted(name: str) -> str:
    return f"~{digest(' '.join(name.rstrip(AS_TOLD).casefold().split()))[:10]}"


def behind(facts: Iterable[Fact]) -> dict[str, tuple[str, ...]]:
    """Values of prose, in normal form -> what the words before them are counted as."""
    prose = (text for field, _, text in facts if not field or len(text) > LONG)
    found: dict[str, tuple[str, ...]] = {}
    for text in islice(prose, MAX_SENTENCES):
        for name, value in phrases(text):
            for form in in_field(value):
                found.setdefault(form, counted_as(name))
    return found
