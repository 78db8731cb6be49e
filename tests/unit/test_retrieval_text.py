"""Passages of cards: nothing that a card says is in none of them, none is too long, none is cut within a grapheme."""

from __future__ import annotations

from typing import Any

import regex
from hypothesis import given
from hypothesis import strategies as st

from projections.retrieval.text import MAX_PASSAGES, WINDOW, content_hash, passages

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
RARE = "\U00020000\U0002a6d6"


def card(summary: str = "", facts: list[list[str]] | None = None, **more: Any) -> dict[str, Any]:
    return {"tool": "", "summary": summary, "model_summary": None, "facts": facts, **more}


def test_a_short_card_is_one_passage_with_the_name_of_its_tool() -> None:
    facts = [["flights.number", "flights.0", "HAT136"], ["flights.price", "flights.0", "152"]]
    told = card("number: HAT136; price: 152", facts, tool="search_flights")
    assert passages(told) == ["search_flights: number: HAT136; price: 152"]
    assert passages(card()) == []
    assert passages({"tool": "get"}) == []


def test_what_the_summary_leaves_out_follows_with_its_names() -> None:
    facts = [
        ["flights.flight_number", "flights.0", "HAT136"],
        ["flights.fares.economy", "flights.0.fares", "152"],
        ["flights.fares.business", "flights.0.fares", "417"],
        ["*.seat", "users.mia", "12A"],
        ["", "3", "The gate closes at 10:15."],
    ]
    [passage] = passages(card("flights: HAT136", facts, model_summary="One flight was found."))
    assert passage.splitlines() == [
        "One flight was found.", "flights: HAT136", "economy: 152; business: 417", "seat: 12A",
        "The gate closes at 10:15.",
    ]  # fmt: skip


def test_cards_that_differ_in_their_tails_alone_differ_in_a_passage() -> None:
    """C32: equal for 600 words, and both are found by what follows."""
    same = [
        ["", str(number), f"Paragraph {number} says what all such letters say, word for word."] for number in range(60)
    ]
    tails = ["The deposit goes back to Mia.", "The deposit is kept by the landlord."]
    first, second = (passages(card("A letter of 60 paragraphs.", [*same, ["", "70", tail]])) for tail in tails)
    assert set(first) ^ set(second) == {first[-1], second[-1]}
    assert tails[0] in first[-1] and tails[1] in second[-1]


def test_long_text_is_cut_between_graphemes() -> None:
    """C30: families of emoji, and characters beyond the first plane, stay whole."""
    for unit in (FAMILY, RARE, "e\N{COMBINING ACUTE ACCENT}"):
        found = passages(card(unit * 700))
        assert len(found) > 1
        for passage in found:
            assert len(passage) <= WINDOW
            clusters = regex.findall(r"\X", passage)
            assert set(clusters) == set(regex.findall(r"\X", unit))


def test_windows_of_one_text_overlap() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    found = passages(card(words))
    assert all(any(f"word{n} word{n + 1} " in f"{passage} " for passage in found) for n in range(199))


_FACTS = st.lists(
    st.tuples(st.text("abc.*_", max_size=12), st.text("01", max_size=2), st.text(max_size=900)).map(list), max_size=12
)


@given(st.text(max_size=1_500), st.none() | st.text(max_size=300), _FACTS)
def test_passages_are_short_few_and_each_once(summary: str, model_summary: str | None, facts: list[list[str]]) -> None:
    told = card(summary, facts, model_summary=model_summary, tool="t")
    found = passages(told)
    assert found == passages(told)
    assert len(found) <= MAX_PASSAGES and len(set(found)) == len(found)
    assert all(passage.strip() and len(passage) <= WINDOW for passage in found)


@given(st.text(max_size=700), st.lists(st.text("xyz 9é航", min_size=1, max_size=90), max_size=20))
def test_every_fact_stands_in_a_passage(summary: str, texts: list[str]) -> None:
    facts = [["a.b", str(number), text] for number, text in enumerate(texts)]
    said = "\n".join(passages(card(summary, facts)))
    assert all(text.strip() in said for text in texts)


def test_equal_texts_have_equal_hashes() -> None:
    assert content_hash("café") == content_hash("café") != content_hash("cafe")
    assert len(content_hash("")) == 32


def test_a_table_is_cut_between_its_rows() -> None:
    rows = [f"- HAT{number:03} | JFK | SEA | 10:{number % 60:02} | {number * 7}" for number in range(90)]
    found = passages(card("flights: number | from | to | at | price\n" + "\n".join(rows)))
    assert len(found) > 3
    assert [line for passage in found for line in passage.splitlines()][1:] == rows
