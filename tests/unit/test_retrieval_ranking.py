"""Ranking within one scope: which card, in which order, why; whatever the vectors are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.retrieval.reranking import WINDOW, Run, rerank
from projections.retrieval.scope_index import ScopeIndex
from services.embedding.model import unit_rows
from tests.unit.retrieval_lab import cards, found, give_vectors, index_of, row

QUERIES = ["", "flight", "座位", 'C:\\repo\\a|b (x:y) "q" @z -not * ~ AND', "\u200d", "2026-03-01", "HAT136 " * 9_000]


def flights() -> ScopeIndex:
    return index_of(
        row("c1", "flight HAT136 to Oslo, price 220", values=["hat136", "220", "oslo"], tool="search"),
        row("c2", "flight HAT245 to Rome, price 180", values=["hat245", "180", "rome"], tool="search", uses=3, value=7),
        row("c3", "我喜欢靠窗的座位", source="user"),
        row("c4", "a table for two in Rome", status="superseded", superseded_by="c2"),
        uses={"c2": [("call-9", "book_reservation"), ("e-5", "which flight to take")]},
    )


def test_an_exact_value_wins_over_words() -> None:
    hits = found(flights(), "flight HAT245")
    assert cards(hits)[:2] == ["c2", "c1"] and hits[0].shares["values"] > 0.1


def test_a_word_of_two_chinese_characters_is_found() -> None:
    assert cards(found(flights(), "座位")) == ["c3"]


def test_the_date_in_a_query_finds_what_was_said_that_day() -> None:
    index = index_of(row("c1", "to the museum"), row("c2", "to the museum", as_of="2026-05-02T08:00:00Z"))
    assert cards(found(index, "what did I see on May 2nd, in the museum?"))[0] == "c2"
    assert cards(found(index, "我在5月2日去了哪里？"))[0] == "c2"


def test_status_is_told_and_filtered() -> None:
    assert "c4" not in cards(found(flights(), "Rome"))
    assert [(hit.entry.card, hit.state) for hit in found(flights(), "Rome", status="superseded")] == [
        ("c4", "superseded")
    ]
    assert set(cards(found(flights(), "", status="any"))) == {"c1", "c2", "c3", "c4"}


def test_what_outlived_its_time_is_expired_at_read() -> None:
    index = index_of(row("c1", "price 220", ttl_s=60.0), row("c2", "price 230"))
    assert cards(found(index, "price")) == ["c2"]
    (hit,) = found(index, "price", status="expired")
    assert (hit.entry.card, hit.state) == ("c1", "expired")
    assert cards(found(index, "price", as_of="2026-03-01T10:00:30Z")) == ["c1", "c2"]


def test_as_of_shows_what_stood_then() -> None:
    index = index_of(
        row("c1", "lives in Oslo", status="superseded", superseded_by="c2"),
        row("c2", "lives in Rome", as_of="2026-04-01T10:00:00Z"),
    )
    assert cards(found(index, "lives")) == ["c2"]
    (then,) = found(index, "lives", as_of="2026-03-15T00:00:00Z")
    assert (then.entry.card, then.state) == ("c1", "active")
    assert found(index, "lives", as_of="2026-02-01T00:00:00Z") == []


def test_filters_apply() -> None:
    assert cards(found(flights(), "", filter={"tool": "search", "value": {"gte": 3}})) == ["c2"]


def test_two_cards_with_one_beginning_are_both_found_by_their_tails() -> None:
    """C32: 600 tokens in common."""
    same = "the same words again and again " * 100
    index = index_of(row("c1", f"{same} ends with zebra"), row("c2", f"{same} ends with walrus"))
    assert cards(found(index, "zebra")) == ["c1"] and cards(found(index, "walrus")) == ["c2"]


def test_the_focus_is_a_decision_by_id_or_by_words() -> None:
    for focus in ("call-9", "e-5", "c2", "book a reservation"):
        assert cards(found(flights(), "price", focus=focus))[0] == "c2", focus
    assert found(flights(), "", focus="call-9")[0].shares["focus"] > 0
    assert cards(found(flights(), "", focus="call-9", status="any"))[:2] == ["c2", "c4"]


def test_what_is_told_adds_up_to_the_score() -> None:
    index = flights()
    give_vectors(index, {"c1": [1.0, 0.0], "c2": [0.6, 0.8], "c3": [0.0, 1.0]})
    for hit in found(index, "flight to Rome HAT245", np.array([0.6, 0.8], dtype=np.float32), focus="call-9"):
        assert sum(hit.shares.values()) == pytest.approx(hit.score, abs=1e-9)
        told = {"embedding", "keyword", "values", "focus", "session", "recency", "value", "links", "trigger", "outcome"}
        assert told == set(hit.shares)


def test_pages_are_pieces_of_one_order() -> None:
    index = index_of(*(row(f"c{number:02}", "the same words") for number in range(25)))
    whole = cards(found(index, "words", top_k=100))
    assert whole == sorted(whole) and len(whole) == 25
    assert [card for start in range(0, 25, 4) for card in cards(found(index, "words", top_k=4, offset=start))] == whole


def test_a_changed_card_leaves_nothing_behind() -> None:
    index = flights()
    fresh = index_of(row("c1", "quite another thing"), *(row(f"x{number}", "more") for number in range(3)))
    for number in range(3):
        index.put(row(f"x{number}", "more"))
    index.put(row("c1", "quite another thing"))
    for card in ("c2", "c3", "c4"):
        index.drop(card)
    for query in ("Oslo", "more", "another thing", "HAT136"):
        assert repr(found(index, query)) == repr(found(fresh, query))
    assert len(index) == 4 and not index.wasteful


def test_an_index_that_is_mostly_leftovers_says_so() -> None:
    index = index_of(row("c1", "a"))
    for _ in range(300):
        index.put(row("c1", "a"))
    assert len(index) == 1 and index.wasteful


def test_what_was_said_beside_an_answer_comes_before_what_was_not() -> None:
    """Of two cards that fit alike, the one of the session (or run) with the best card; none rises without fitting."""
    for column in ("session", "run"):
        rows = [
            row("c1", "a blue boat", **{column: "one"}),
            row("c2", "a boat", **{column: "two"}),
            row("c3", "a boat", **{column: "three"}),
            row("c4", "a boat in Oslo harbour", **{column: "three"}),
            row("c5", "nothing of it", **{column: "three"}),
        ]
        rows = [{**each, "run": each["run"] if column == "run" else ""} for each in rows]
        hits = found(index_of(*rows), "boat in Oslo harbour")
        order = cards(hits)
        assert order[:2] == ["c4", "c3"] and order.index("c3") < order.index("c2") and "c5" not in order
    alone = found(index_of(*({**each, "run": "", "session": ""} for each in rows)), "boat in Oslo harbour")
    assert cards(alone)[:3] == ["c4", "c2", "c3"]


def test_the_past_is_not_told_apart_by_what_a_session_came_to_say_later() -> None:
    told = [row("c1", "a boat", session="one"), row("c2", "a boat", session="two")]
    later = row("c3", "a boat in Oslo", session="two", as_of="2026-04-01T10:00:00Z")
    then = [
        (hit.entry.card, hit.shares["session"]) for hit in found(index_of(*told), "boat", as_of="2026-03-15T00:00:00Z")
    ]
    with_later = found(index_of(*told, later), "boat", as_of="2026-03-15T00:00:00Z")
    assert [hit.entry.card for hit in with_later] == [card for card, _ in then] == ["c1", "c2"]
    assert len({hit.shares["session"] for hit in with_later}) == 1


# --- the second look -------------------------------------------------------------------------------------------------


def test_among_like_cards_those_of_runs_that_succeeded_come_first() -> None:
    index = index_of(*(row(f"c{n}", "the same words", run=f"r{n}") for n in range(4)))
    hits = found(index, "words")
    outcomes = {Run("task/t1", "r1"): 0.0, Run("task/t1", "r2"): 1.0}
    again = rerank(hits, outcomes, {})
    assert cards(again) == ["c2", "c0", "c3", "c1"]
    assert rerank(hits, {}, {}) == hits
    for hit in again:
        assert sum(hit.shares.values()) == pytest.approx(hit.score, abs=1e-9)


def test_a_cross_encoder_decides_half_of_the_score_within_the_window() -> None:
    index = index_of(*(row(f"c{n:03}", "the same words") for n in range(WINDOW + 10)))
    hits = found(index, "words", top_k=WINDOW + 10)
    again = rerank(hits, {}, {"c007": 1.0, "c059": 1.0})
    assert again[0].entry.card == "c007" and again[0].shares["cross_encoder"] == 0.5
    assert cards(again[WINDOW:]) == cards(hits[WINDOW:]), "what lies beyond the window keeps its place"
    assert all(0 <= hit.score <= 1 for hit in again)


# --- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0], [1.0, 0.0, 0.0], []])
@pytest.mark.parametrize("text", QUERIES)
def test_scores_are_finite_whatever_the_vector_and_the_words(query: list[float], text: str) -> None:
    """C17, C19, C44."""
    index = flights()
    give_vectors(index, {"c1": [1.0, 0.0], "c2": [0.0, 1.0]})
    hits = found(index, text, np.array(query, dtype=np.float32))
    json.dumps([(hit.score, hit.relevance, hit.shares) for hit in hits], allow_nan=False)
    assert all(0 <= hit.score <= 1 and "embedding" not in hit.shares for hit in hits)


def test_vectors_of_two_dimensions_are_never_compared() -> None:
    """C17, C44: 2 dimensions, then a model of 3; some cards have no vector of it yet, and are found by words."""
    index = flights()
    give_vectors(index, {"c1": [1.0, 0.0], "c2": [0.0, 1.0], "c3": [0.0, 1.0]})
    give_vectors(index, {"c1": [1.0, 0.0, 0.0], "c2": [0.0, 1.0, 0.0]}, model="larger")
    hits = found(index, "flight", np.array([0.0, 1.0, 0.0], dtype=np.float32))
    assert cards(hits)[0] == "c2" and hits[0].shares["embedding"] > 0
    index.vectors.fill(["whatever"], np.ones((1, 2), dtype=np.float32))
    assert "embedding" not in found(index, "flight", np.array([0.0, 1.0], dtype=np.float32))[0].shares
    assert cards(found(index, "座位", np.array([0.0, 1.0, 0.0], dtype=np.float32)))[0] == "c3"


@given(st.lists(st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3), min_size=1, max_size=8))
def test_the_matrix_is_exact(raw: list[list[float]]) -> None:
    rows = [vector.tolist() for vector in unit_rows(raw)]
    index = index_of(*(row(f"c{number}", f"card {number}") for number in range(len(rows))))
    give_vectors(index, {f"c{number}": vector for number, vector in enumerate(rows)})
    query = np.array([0.6, 0.0, 0.8], dtype=np.float32)
    cosines, known = index.vectors.cosines(query)
    assert known.all()
    assert cosines == pytest.approx([float(np.dot(np.array(v, dtype=np.float32), query)) for v in rows], abs=2e-6)
