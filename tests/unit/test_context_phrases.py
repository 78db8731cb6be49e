"""The values of sentences, behind the words that stand before them: several languages, no value that is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.reading.facts import Fact, facts_of
from projections.cards.reading.phrases import AS_TOLD, behind, counted_as, phrases
from projections.context.phrases import labels, phrased, phrases_before
from projections.context.rendering import named
from projections.context.sources import Source


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Slot FR-2K9 is on 2026-05-04 from 09:30, room: 12b.",
         ["Slot FR-2K9", "is on 2026-05-04", "from 09:30", "room: 12b"]),
        ("There are 3 orders: #W123, #W124 and #W125.",
         ["There are 3", "orders: #W123", "orders: #W124", "orders: #W125"]),
        ("Mia (user id mia_li_3668) lives at 123 Elm Street, Suite 5, Austin, TX 78750.",
         ["user id mia_li_3668", "lives at 123 Elm Street", "Suite 5", "Suite Austin", "TX 78750"]),
        ("编号为P123，医保卡号YB456（医生D77685）。", ["编号为P123", "医保卡号YB456", "医生D77685"]),
        ("部屋コードABC123は1泊12000円です。", ["部屋コードABC123", "は1", "泊12000"]),
        ("Das Konto KTO-1234567 hat am 90210.", ["Das Konto KTO-1234567", "hat am 90210"]),
        ("FAILED tests/test_a.py::test_b - KeyError", ["FAILED tests/test_a.py::test_b"]),
        ("W77123 is on its way.", []),
    ],
)  # fmt: skip
def test_values_are_named_by_the_words_before_them_as_they_stand(sentence: str, told: list[str]) -> None:
    """C30: words without spaces between them name values, too."""
    assert [named(name, value) for name, value in phrases(sentence)][: len(told)] == told


def test_names_that_stand_once_are_known_by_the_word_they_share() -> None:
    said = "Room key K-11 is lost. Gym key K-22 is here."
    source = phrased([Source("c", "1-1", "find", tuple(facts_of(said)))])[0]
    told = labels(source)
    assert [named(told[fact.field], fact.text) for fact in source.facts if fact.field] == ["key K-11", "key K-22"]


def test_names_of_fields_are_never_cut() -> None:
    data = {"用户编号": "U317435229", "订单编号": "D110001147", "店铺编号": "S9796361"}
    assert labels(phrased([Source("c", "1-1", "find", tuple(facts_of(data)))])[0]) == {name: name for name in data}


def test_ids_that_a_cell_lists_are_values_one_by_one() -> None:
    card = Source("c", "1-1", "get", tuple(facts_of({"orders": "#W1001 #W1002", "city": "New York"})))
    assert [fact.text for fact in phrased([card])[0].facts] == ["#W1001", "#W1002", "New York"]


@given(st.text(st.sampled_from("aB9 -#:,.(和号カ\U0001f600é"), max_size=80))
def test_what_is_told_stands_in_the_sentence(sentence: str) -> None:
    told = phrases(sentence)
    assert all(value in sentence and name and name.rstrip(AS_TOLD) in sentence for name, value in told)
    shared = {place for place, (name, _) in enumerate(told) if place and told[place - 1][0] == name}
    assert all(
        named(name, value) in sentence
        for place, (name, value) in enumerate(told)
        if name.endswith(AS_TOLD) and place not in shared
    )


def test_a_value_that_is_a_field_somewhere_is_told_there_and_a_tools_words_go_before_a_persons() -> None:
    person = Source("c1", "1-1", "user", tuple(facts_of("My id is mia_1, and my order is W-77.")))
    tool = Source("c2", "1-2", "find", tuple(facts_of("The order number W-77 belongs to user mia_1.")))
    data = Source("c3", "1-3", "get", (Fact("user_id", "", "mia_1"),))
    said, found, got = phrased([person, tool, data])
    assert [fact.text for fact in said.facts] == ["My id is mia_1, and my order is W-77."]
    assert found.facts[0] == Fact(f"order number {AS_TOLD}", "0", "W-77") and got == data
    assert list(phrases_before(found.facts, 1)) == [0]


def test_values_are_counted_by_a_digest_of_the_words_before_them() -> None:
    found = behind(facts_of("The order number #W123 belongs to user mia_1. Order number: W456"))
    assert found["w123"] == counted_as("order NUMBER ") != found["mia_1"]
    assert (
        len(found["w123"]) == 2 and found["w123"][1] == counted_as("phone number")[1] != counted_as("phone number")[0]
    )
    assert counted_as("number") == found["w123"][1:] and all(name.startswith("~") for name in found["w123"])
    assert "order" not in str(found)
