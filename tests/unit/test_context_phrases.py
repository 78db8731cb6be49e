"""The values of sentences, behind the words that stand before them: several languages, no value that is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.facts import Fact, facts_of
from projections.context.phrases import phrased, phrases, phrases_before
from projections.context.sources import Source


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Slot FR-2K9 is on 2026-05-04 from 09:30, room 12b.",
         [("Slot", "FR-2K9"), ("is on", "2026-05-04"), ("from", "09:30"), ("room", "12b")]),
        ("There are 3 orders: #W123, #W124 and #W125.",
         [("orders", "#W123"), ("orders", "#W124"), ("orders", "#W125")]),
        ("编号为P123，医保卡号YB456。", [("编号为", "P123"), ("医保卡号", "YB456")]),
        ("部屋コードABC123は1泊12000円です。", [("部屋コード", "ABC123"), ("泊", "12000")]),
        ("Das Konto KTO-1234567 hat 90210 Punkte.", [("Das Konto", "KTO-1234567"), ("hat", "90210")]),
        ("W77123 is on its way.", []),
    ],
)  # fmt: skip
def test_values_are_named_by_the_words_before_them(sentence: str, told: list[tuple[str, str]]) -> None:
    """C30: words without spaces between them name values, too."""
    assert list(phrases(sentence))[: len(told)] == told and len(phrases(sentence)) <= len(told) + 1


@given(st.text(st.sampled_from("aB9 -#:,.(和号カ\U0001f600é"), max_size=80))
def test_what_is_told_stands_in_the_sentence(sentence: str) -> None:
    assert all(value in sentence and name in sentence and name for name, value in phrases(sentence))


def test_a_value_that_is_a_field_somewhere_is_told_there_and_a_tools_words_go_before_a_persons() -> None:
    person = Source("c1", "1-1", "user", tuple(facts_of("My id is mia_1, and my order is W-77.")))
    tool = Source("c2", "1-2", "find", tuple(facts_of("The order number W-77 belongs to user mia_1.")))
    data = Source("c3", "1-3", "get", (Fact("user_id", "", "mia_1"),))
    said, found, got = phrased([person, tool, data])
    assert [fact.text for fact in said.facts] == ["My id is mia_1, and my order is W-77."]
    assert found.facts[0] == Fact("order number", "0", "W-77") and got == data
    assert list(phrases_before(found.facts, 1)) == [0]
