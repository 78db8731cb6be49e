"""The values of a sentence, each with the words that it stands behind: what a field's name is in data.

    Slot FR-2K9 is on 2026-05-04 from 09:30, room 12b.     Slot: FR-2K9; is on: 2026-05-04; from: 09:30; room: 12b
    编号为P123，医保卡号YB456。                              编号为: P123; 医保卡号: YB456

The words before a value name it, up to ``MAX_WORDS`` of them (``MAX_LETTERS`` letters where words have no spaces), and
no further back than the punctuation before them. Values side by side (``orders: A1, A2 and A3``) share the words before
the first. A value that nothing stands before is told by its sentence alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import regex

from projections.cards.facts import Fact
from projections.cards.tokens import spans
from projections.context.shapes import is_prose
from projections.context.sources import Source

PERSON = "user"
"""Title of what a person said."""

MAX_WORDS = 2
MAX_LETTERS = 4

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}"
_NEXT_TO = regex.compile(r"[\s,;/、，；]*(?:(?:and|or|und|oder|y|o|et|ou|e|и|或|和|及|と)[\s])?[\s#$€£¥]*|[和或及と]")
_LEAD = regex.compile(
    rf"""(?: (?P<words>[^\W\d_{_SPACELESS}][\w'’-]*(?:[ ][^\W\d_{_SPACELESS}][\w'’-]*){{0,{MAX_WORDS - 1}}})
           | (?P<letters>\p{{Han}}{{0,2}}[\p{{Katakana}}ー]{{2,12}} | [{_SPACELESS}]{{1,{MAX_LETTERS}}}) )
        [\s:：=(（\[「『“"'`*#$€£¥№-]*$""",
    regex.VERBOSE,
)
_LEADS = regex.compile(r"[\s:：#(（]{1,3}")
_WINDOW = 60
"""Code points before a value that are searched for words."""


@lru_cache(maxsize=16_384)
def phrases(sentence: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of each value of a sentence, in order (those that nothing stands before are left out)."""
    found: list[tuple[str, str]] = []
    places = list(spans(sentence))
    end, name = 0, ""
    for place, (start, stop, plain) in enumerate(places):
        following = places[place + 1] if place + 1 < len(places) else None
        if following and plain and _LEADS.fullmatch(sentence[stop : following[0]]) and not sentence[start].isdigit():
            continue  # it names what follows
        before = sentence[max(end, start - _WINDOW) : start]
        if not (name and found and _NEXT_TO.fullmatch(before)):
            lead = _LEAD.search(before)
            name = (lead["words"] or lead["letters"]) if lead else ""
        if name:
            found.append((name, sentence[start:stop]))
            end = stop
    return tuple(found)


def phrased(sources: Sequence[Source]) -> list[Source]:
    """The sources with what their sentences tell as facts of their own, before each sentence.

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
        told.append(fact)
    return tuple(told)
