"""Words: any script, no operator, no form that hides a match (C19, C31)."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from projections.retrieval.words import MAX_WORD, words


def test_words_of_latin_text_are_without_case_accents_and_plural() -> None:
    assert words("Two Flights, a CAFÉ!") == ["two", "flight", "a", "cafe"]
    assert words("glass bus lenses") == ["glass", "bus", "lense"]


def test_two_characters_of_chinese_are_found_within_a_sentence() -> None:
    sentence = words("我喜欢靠窗的座位")
    assert {"座位", "靠窗"} <= set(sentence)
    assert set(words("座位")) <= set(sentence)


def test_kana_hangul_and_thai_give_pairs() -> None:
    assert "チケ" in words("チケットを買う")
    assert "예약" in words("항공권을 예약했다")
    assert set(words("ไทย")) <= set(words("ภาษาไทย"))


def test_marks_of_devanagari_stay_with_their_letters() -> None:
    assert words("नमस्ते दुनिया") == [unicodedata.normalize("NFC", word) for word in ("नमस्ते", "दुनिया")]


def test_mixed_scripts_are_told_apart() -> None:
    assert words("航班HAT136号") == ["航", "班", "航班", "hat136", "号"]


def test_width_and_composition_make_no_difference() -> None:
    """C31."""
    told = words("café")
    assert words(unicodedata.normalize("NFD", "café")) == words("ＣＡＦＥ́") == words("CAFE") == told
    assert words("ｶﾞｲﾄﾞ") == words("ガイド")


def test_operators_and_quotes_are_plain_text() -> None:
    """C19."""
    assert words('C:\\repo\\a|b (x:y) "q" @z -not * ~ AND') == ["c", "repo", "a", "b", "x", "y", "q", "z", "not", "and"]


def test_nothing_gives_nothing() -> None:
    assert words("") == words(" \n\t") == words('"*~|()') == []


@given(st.text(max_size=300))
def test_every_text_gives_words_that_are_stable_and_bounded(text: str) -> None:
    found = words(text)
    assert all(0 < len(word) <= MAX_WORD for word in found)
    assert found == words(text)


@given(st.text(max_size=100), st.text(max_size=100))
def test_words_apart_are_the_words_together(left: str, right: str) -> None:
    assert words(left) + words(right) == words(f"{left}\n{right}")
