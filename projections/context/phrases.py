"""The values of a sentence, each with the words that it stands behind: what a field's name is in data.

    Slot FR-2K9 is on 2026-05-04 from 09:30, room 12b.     Slot: FR-2K9; is on: 2026-05-04; from: 09:30; room: 12b
    编号为P123，医保卡号YB456。                              编号为: P123; 医保卡号: YB456

The words before a value name it, up to ``MAX_WORDS`` of them (``MAX_LETTERS`` letters where words have no spaces), and
no further back than the punctuation before them. Values side by side (``orders: A1, A2 and A3``) share the words before
the first. A value that nothing stands before is told by its sentence alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import regex

from projections.cards.facts import Fact
from projections.cards.tokens import spans
from projections.context.rendering import AS_TOLD
from projections.context.shapes import is_prose, several
from projections.context.sources import Source

PERSON = "user"
"""Title of what a person said."""

MAX_WORDS = 2
MAX_LETTERS = 4

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}"
_NEXT_TO = regex.compile(r"[\s,;/、，；]*(?:(?:and|or|und|oder|y|o|et|ou|e|и|或|和|及|と)[\s])?[\s#$€£¥]*|[和或及と]")
_LEAD = regex.compile(
    rf"""(?: (?<![\w./\\-])
             (?P<words>[^\W\d_{_SPACELESS}][\w'’-]*(?:[ ][^\W\d_{_SPACELESS}][\w'’-]*){{0,{MAX_WORDS - 1}}})
           | (?P<letters>\p{{Han}}{{0,2}}[\p{{Katakana}}ー]{{2,12}} | [{_SPACELESS}]{{1,{MAX_LETTERS}}}) )
        (?P<gap>[ :：=(（\[「『“"'`*#$€£¥№-]*)$""",
    regex.VERBOSE,
)
_LEADS = regex.compile(r"[ :：#(（]{1,3}")
_LAST = regex.compile(rf"(?:[{_SPACELESS}]{{2}}|(?<=[ ])[^\s{AS_TOLD}]+)[ ]?{AS_TOLD}?$")
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


def phrased(sources: Sequence[Source]) -> list[Source]:
    """The sources with what their sentences tell as facts of their own, before each sentence; lists of ids one by one.

    A value that is a field's somewhere is told there; one that a tool and a person told, as the tool did.
    """
    known = {fact.text for source in sources for fact in source.facts if not is_prose(fact.field, fact.text)}
    told = {place: _told(source.facts, known) for place, source in enumerate(sources) if source.title != PERSON}
    known |= {fact.text for facts in told.values() for fact in facts}
    return [
        source._replace(facts=told[place] if place in told else _told(source.facts, known))
        for place, source in enumerate(sources)
    ]


def phrases_before(facts: Sequence[Fact], sentence: int) -> range:
    """Where the facts stand that were made of the sentence at an index."""
    first = sentence
    while first and facts[first - 1].record == facts[sentence].record and not is_prose(*facts[first - 1][::2]):
        first -= 1
    return range(first, sentence)


def _told(facts: Iterable[Fact], known: Collection[str]) -> tuple[Fact, ...]:
    told: list[Fact] = []
    for fact in facts:
        if is_prose(fact.field, fact.text):
            told += [Fact(name, fact.record, value) for name, value in phrases(fact.text) if value not in known]
        elif len(things := several(fact.text)) > 1:
            told += [fact._replace(text=thing) for thing in things]
            continue
        told.append(fact)
    names = Counter(fact.field for fact in told if not is_prose(fact.field, fact.text))
    shared = Counter(_last_of(name) for name in names)
    return tuple(
        fact._replace(field=_last_of(fact.field))
        if names[fact.field] == 1 and shared[_last_of(fact.field)] > 1
        else fact
        for fact in told
    )


@lru_cache(maxsize=8_192)
def _last_of(name: str) -> str:
    """The last word of a name of two, or the last two letters where words have no spaces."""
    word = _LAST.search(name)
    return word[0] if word else name
