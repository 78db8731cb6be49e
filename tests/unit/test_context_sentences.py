"""Which sentences stand whole in a context of prose: what is likely needed, each once, the rest behind its words."""

from __future__ import annotations

from projections.cards.reading.facts import facts_of
from projections.context.choosing import likely
from projections.context.phrases import phrased
from projections.context.ranking import rank
from projections.context.sentences import room, whole
from projections.context.sources import Needs, Source
from projections.context.tokens import weigh

PARCELS = [
    f"Parcel PX-{n}0817 goes from Lyon to depot DEP-{n}44, weighs {n}7.25 kg and was seen there on 2026-0{n}-11."
    for n in range(1, 9)
]
TOLD = Source("c1", "1-1", "list_parcels", tuple(facts_of("\n".join(PARCELS))))
NEEDS = Needs(said="what about parcel px-50817?", used=frozenset({"px-30817"}))
WHOLE = weigh("\n".join(PARCELS))


def test_the_sentence_of_what_was_used_stands_whole_and_the_others_are_told_by_phrases() -> None:
    text = likely([TOLD], NEEDS, int(WHOLE * 0.6)).text
    assert PARCELS[2] in text.splitlines()
    others = [n for n in range(8) if PARCELS[n] not in text]
    assert len(others) > 3 and all(f"PX-{n + 1}0817" in text for n in others)
    assert all(text.count(f"PX-{n}0817") == 1 for n in range(1, 9))


def test_a_tight_budget_leaves_no_room_for_sentences() -> None:
    assert room([TOLD], int(WHOLE)) > room([TOLD], int(WHOLE * 0.5)) > 0
    assert room([TOLD], int(WHOLE * 0.5)) / WHOLE < 0.5
    text = likely([TOLD], NEEDS, int(WHOLE * 0.15)).text
    assert text and not any(sentence in text for sentence in PARCELS)


def test_a_sentence_that_tells_more_for_what_it_costs_comes_first() -> None:
    said = "Room R-101 and room R-202 are free. Room R-303 is, after all that was written about it last week, free."
    sources = phrased([Source("c", "1-1", "find", tuple(facts_of(said)))])
    found = whole(sources, rank(sources, Needs())).sentences
    assert [sources[0].facts[one.fact].text[:10] for one in found] == ["Room R-101", "Room R-303"]


def test_what_a_person_said_and_texts_of_fields_are_no_sentences_of_results() -> None:
    person = Source("c1", "1-1", "user", tuple(facts_of("My order is W-77123. The other one is W-77124.")))
    field = Source("c2", "1-2", "get", tuple(facts_of({"note": "The order is W-77125. " * 8, "id": "N-1"})))
    sources = phrased([person, field])
    assert whole(sources, rank(sources, Needs())) == ([], 0.0)
