"""Fusion and BM25: no scale drowns another, nothing saturates, what is gone leaves no trace (C34)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.retrieval.asking import LIGHT, substance
from projections.retrieval.fusion import Signal, fuse
from projections.retrieval.postings import Postings
from projections.retrieval.words import words

Numbers = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=2, max_size=12)


def total(signals: dict[str, Signal], size: int) -> np.ndarray:
    return np.sum(list(fuse(signals, size).values()), axis=0)


def test_ten_cards_with_keywords_up_to_40_and_cosines_up_to_1_keep_ten_scores() -> None:
    """C34: no two of them end at the same ceiling, and both signals count."""
    keyword, cosine = np.linspace(40, 4, 10), np.array([0.1, 0.2, 0.9, 0.3, 0.8, 0.4, 0.5, 0.6, 0.7, 0.35])
    scores = total({"keyword": Signal(keyword, 0.5), "embedding": Signal(cosine, 0.5)}, 10)
    assert len(set(scores)) == 10 and scores.max() <= 1.0
    assert int(scores.argmax()) == 2 and scores[0] > scores[9]


@given(Numbers, st.floats(0.01, 1000))
def test_the_scale_of_a_signal_makes_no_difference(values: list[float], scale: float) -> None:
    """C34."""
    raw, other = np.array(values), np.linspace(1, 0, len(values))
    one = total({"a": Signal(raw, 0.4), "b": Signal(other, 0.6)}, len(values))
    scaled = total({"a": Signal(raw * scale, 0.4), "b": Signal(other, 0.6)}, len(values))
    assert np.allclose(one, scaled)


@given(Numbers)
def test_one_signal_alone_keeps_its_own_order(values: list[float]) -> None:
    raw = np.array(values)
    scores = total({"a": Signal(raw, 1.0)}, len(values))
    assert (np.sign(scores[:, None] - scores) == np.sign(raw[:, None] - raw)).all() or np.allclose(raw, raw[0])


def test_a_weak_best_does_not_count_as_a_good_one() -> None:
    signals = {"a": Signal(np.array([0.05, 0.0]), 1.0, 0.5), "b": Signal(np.array([0.0, 1.0]), 1.0, 0.5)}
    assert total(signals, 2).tolist() == pytest.approx([0.05, 0.5])


def test_what_a_signal_cannot_tell_is_left_to_the_others() -> None:
    known = np.array([True, False])
    scores = total({"a": Signal(np.ones(2), 0.5, 0, known), "b": Signal(np.array([1.0, 1.0]), 0.5)}, 2)
    assert scores.tolist() == [1.0, 1.0]


@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=2, max_size=12).filter(lambda v: max(v) - min(v) > 0.1),
    st.floats(0.3, 1), st.floats(0, 0.6),
)  # fmt: skip
def test_cosines_that_all_are_high_count_as_much_as_others(raw: list[float], scale: float, more: float) -> None:
    """Models differ in what they take for no likeness at all: only what stands out from the mean tells."""
    keyword, cosines = np.linspace(1, 0, len(raw)), np.array(raw)

    def fused(meaning: np.ndarray) -> np.ndarray:
        return total({"k": Signal(keyword, 0.4), "m": Signal(meaning, 0.6, 0.0, None, 0.01)}, len(raw))

    at_least = cosines >= round(float(cosines.mean()), 6) + 1e-5
    moved = cosines * scale + more
    assert np.allclose(fused(cosines)[at_least], fused(moved)[at_least], atol=1e-3)
    assert (fused(cosines) <= 1).all() and (fused(moved) <= 1).all()


def test_a_meaning_that_stands_out_by_chance_only_gives_way_to_words() -> None:
    """What a model says that does not know the language; where words say nothing, it counts in full."""
    noise = 0.6 + 0.1 * np.random.default_rng(7).uniform(-1, 1, 500)
    words_say, silent = np.zeros(500), np.zeros(500)
    words_say[3] = 0.5
    noise[3] = 0.5
    meaning = Signal(noise, 0.6, 0.5, None, 0.15)
    assert int(total({"k": Signal(words_say, 0.4, 0.25), "m": meaning}, 500).argmax()) == 3
    assert int(total({"k": Signal(silent, 0.4, 0.25), "m": meaning}, 500).argmax()) == int(noise.argmax())
    assert total({"k": Signal(silent, 0.4, 0.25), "m": meaning}, 500).max() == pytest.approx(0.6)
    clear = noise.copy()
    clear[9] = 0.95
    assert int(total({"k": Signal(words_say, 0.4, 0.25), "m": Signal(clear, 0.6, 0.5, None, 0.15)}, 500).argmax()) == 9


def test_numbers_that_are_none_and_no_signals_are_finite() -> None:
    """C44, C17."""
    scores = total({"a": Signal(np.array([np.nan, np.inf, -1.0, 0.5]), 1.0)}, 4)
    assert scores.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert fuse({}, 3) == {}
    assert total({"a": Signal(np.zeros(2), 1.0)}, 2).tolist() == [0.0, 0.0]


# --- keywords --------------------------------------------------------------------------------------------------------


def scores_of(texts: list[str], query: str, gone: tuple[int, ...] = ()) -> list[float]:
    postings = Postings()
    alive = np.ones(len(texts), dtype=np.bool_)
    for text in texts:
        postings.add(words(text))
    alive[list(gone)] = False
    return postings.scores(words(query), alive).tolist()


def test_rare_words_count_more_and_long_texts_less() -> None:
    texts = ["the flight to Oslo", "the flight to Rome", "the flight to Rome " + "and much more of it " * 20]
    oslo, rome, long = scores_of(texts, "flight Rome")
    assert rome > long > oslo > 0


def test_scores_lie_within_0_and_1_however_often_a_word_is_said() -> None:
    assert 0 < scores_of(["no", "yes " * 5000], "yes yes yes")[1] < 1


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        (["What did you do and which was it?", "I bought a red bicycle"], "Which bicycle did you buy?"),
        (["你记得我们当时聊了哪些吗？", "昨天买了一辆自行车"], "你还记得我买了什么自行车吗？"),
        (["Was war das und warum ist es so?", "ein rotes Fahrrad"], "Welche Farbe hat mein Fahrrad und warum?"),
    ],
)
def test_words_that_only_make_a_question_find_no_other_question(texts: list[str], query: str) -> None:
    """They still find what has them where there is nothing else."""
    postings, alive = Postings(), np.ones(2, dtype=np.bool_)
    for text in texts:
        postings.add(words(text))
    asked = words(query)
    plain, weighed = postings.scores(asked, alive), postings.scores(asked, alive, substance(asked))
    assert weighed[1] > weighed[0] > 0 and weighed[1] / weighed[0] > plain[1] / plain[0]
    light = [word for word, counts in substance(asked).items() if counts == LIGHT]
    assert postings.scores(light, alive, substance(light)) == pytest.approx(postings.scores(light, alive))


def test_what_is_gone_leaves_no_trace() -> None:
    texts = ["a red bus", "a blue bus", "a bus in Rome"]
    assert scores_of([*texts, "red red red Rome"], "red Rome", gone=(3,))[:3] == scores_of(texts, "red Rome")


@given(st.permutations(["a red bus", "a blue bus", "Rome", "the red plane to Rome"]))
def test_the_order_of_arrival_makes_no_difference(texts: list[str]) -> None:
    score = dict(zip(texts, scores_of(texts, "red Rome bus"), strict=True))
    expected = scores_of(sorted(texts), "red Rome bus")
    assert [score[text] for text in sorted(texts)] == expected


def test_long_and_empty_queries_are_answered() -> None:
    """A query of 100 KB, of different words."""
    long = " ".join(f"word{number}" for number in range(12_000))
    assert len(long) > 100_000
    first, other = scores_of(["word7 is here", "nothing"], long)
    assert first > other == 0
    assert scores_of(["word7"], "") == [0.0] and scores_of([], "word7") == [] and scores_of([""], "a") == [0.0]
