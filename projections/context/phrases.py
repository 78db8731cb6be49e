"""Sources whose sentences are told by phrases: their values as facts, each behind the words that name it there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from projections.cards.reading.facts import Fact
from projections.cards.reading.phrases import AS_TOLD, last_of, phrases
from projections.context.rendering import labels_of
from projections.context.shapes import is_prose, several
from projections.context.sources import PERSON, Source


def phrased(sources: Sequence[Source]) -> list[Source]:
    """The sources with what their sentences tell as facts of their own, before each sentence; lists of ids one by one.

    A value that is a field's somewhere is told there; one that a tool and a person told, as the tool did.
    """
    every = [fact for source in sources for fact in source.facts]
    known = {fact.text for fact in every if fact.field and not is_prose(fact.field, fact.text)}
    told = {place: _told(source.facts, known) for place, source in enumerate(sources) if source.title != PERSON}
    known |= {fact.text for facts in told.values() for fact in facts}
    return [
        source._replace(facts=told[place] if place in told else _told(source.facts, known))
        for place, source in enumerate(sources)
    ]


def phrases_before(facts: Sequence[Fact], sentence: int) -> range:
    """Where the facts stand that were made of the sentence at an index."""
    first = sentence
    while first:
        before = facts[first - 1]
        if before.record != facts[sentence].record or is_prose(before.field, before.text):
            break
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
    return tuple(told)


def labels(source: Source) -> Mapping[str, str]:
    """A name for each field of a source as it is told: names of prose that stand once share the word they share."""
    fields = labels_of(tuple({fact.field: None for fact in source.facts}))
    names = Counter(fact.field for fact in source.facts if AS_TOLD in fact.field)
    if not names:
        return fields
    shared = Counter(map(last_of, names))
    return fields | {name: last for name, count in names.items() if count == 1 and shared[last := last_of(name)] > 1}
