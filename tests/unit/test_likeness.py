"""Likeness to a query, of experiences and memories, by words and meaning; vectors bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.archive.schema import metadata
from events.database import Database, Stores
from events.errors import Transient
from projections.retrieval import models, vectors
from projections.retrieval.likeness import alike
from projections.retrieval.models import Model
from projections.retrieval.text import content_hash
from projections.retrieval.words import words
from services.cli.experiences import row_of
from services.curation.search import rank
from services.embedding import comparing
from services.embedding.comparing import MOST_COMPARED, MOST_NEW, Comparison
from services.embedding.model import Matrix
from services.searching.experiences import MEANT, meant, passages_of, ranked

DIMENSION = 64


class BagOfWords:
    """A model whose vectors are of the words of a text. ``asked`` are all texts that it was asked about."""

    def __init__(self, name: str = "bag") -> None:
        self.name = name
        self.asked: list[str] = []
        self.broken = False

    async def model(self) -> Model | None:
        return Model(self.name, {}, DIMENSION, "active", 0) if self.name else None

    async def rows(self, model: Model, texts: Sequence[str], *, query: bool = False) -> Matrix:
        if self.broken:
            raise Transient("the model is away")
        self.asked += texts
        return np.stack([vector(text) for text in texts])


def vector(text: str) -> Any:
    row = np.zeros(DIMENSION, dtype=np.float32)
    for word in words(text):
        row[sum(map(ord, word)) % DIMENSION] += 1
    return row / (np.linalg.norm(row) or 1)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = Stores(f"sqlite:///{tmp_path}/stores").log()
    opened.write_now(metadata.create_all)
    yield opened
    opened.close()


def compare(comparison: Comparison, query: str, texts: Sequence[str]) -> comparing.Compared:
    return asyncio.run(comparison.compare("o", query, texts))


# --- documents


def order(documents: Sequence[str], query: str, meaning: Sequence[float] | None = None) -> list[int]:
    found = alike(documents, query, None if meaning is None else np.array(meaning))
    return [like.number for like in found]


def test_words_values_and_meaning_find() -> None:
    """C31: whatever the script, width and composition."""
    documents = ["Refund order A-1189", "给客户退款", "Book a flight to Zürich", "ｃａｆｅ\u0301 opening hours"]
    assert order(documents, "退款") == [1]
    assert order(documents, "café") == [3]
    assert order(documents, "A-1189")[:1] == [0]
    assert order(documents, "gardening") == []
    assert order(documents, "money back", [0.5, 0.45, 0.1, 0.0]) == [0, 1]
    assert sorted(order(documents, "refund", [0.1, 0.6, 0.0, 0.0])) == [0, 1], "what says it and what means it"


def test_an_empty_query_finds_all_in_their_order_and_nothing_in_nothing() -> None:
    assert order(["b", "a"], "  ") == [0, 1]
    assert order([], "a") == [] == order([], "")


@settings(max_examples=100)
@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=5), st.data())
def test_relevance_is_finite_and_within_bounds(query: str, documents: list[str], data: st.DataObject) -> None:
    """C19, C34: any query, any cosines; what signals add makes the relevance."""
    cosine = st.floats(-1, 1) | st.just(float("nan"))
    meaning = np.array(data.draw(st.lists(cosine, min_size=len(documents), max_size=len(documents))), dtype=np.float64)
    for like in alike(documents, query, meaning):
        assert 0 <= like.relevance <= 1
        assert sum(like.signals.values()) == pytest.approx(like.relevance, abs=1e-5)


def test_an_experience_is_as_like_as_its_best_passage() -> None:
    sheet = {"input_summary": "Refund a broken lamp", "cause": "gateway timed out", "output": "", "tools": ["refund"],
             "feedback": [{"text": "太慢了"}, "odd"]}  # fmt: skip
    user = {"run": "r1", "sheet": sheet, "nodes": [{"tool": "refund", "cause": "HTTP 504"}], "path": "lookup > refund"}
    counts = [
        {"tool": "book", "label": "fatal_failure", "count": 2},
        {"tool": "search", "label": "success", "count": 1},
    ]
    agent = {"run": "r2", "sheet": {}, "path": "search > book", "counts": counts}
    passages = [passages_of(user), passages_of(agent), passages_of({"run": "r3"})]
    assert passages[2] == [] and "太慢了" in "\n".join(passages[0]) and "book failed" in "\n".join(passages[1])
    assert "search failed" not in "\n".join(passages[1])
    for query, number in (("timed out", 0), ("504", 0), ("太慢", 0), ("book failed", 1)):
        assert [like.number for like in ranked(passages, query, None)][:1] == [number], query
    assert passages[0][0] == "Refund a broken lamp", "what was asked is a passage of its own"
    assert meant(passages) == [*passages[0][:MEANT], *passages[1]]
    cosines = np.array([0.1] * min(MEANT, len(passages[0])) + [0.9])
    assert [like.number for like in ranked(passages, "something else", cosines)] == [1]
    early = np.array([0.9, *[float("nan")] * (len(cosines) - 1)])  # the first passage alone has a vector yet
    assert [like.number for like in ranked(passages, "something else", early)] == [0]


# --- vectors


def test_a_sheet_of_any_form_is_searched() -> None:
    """Sheets come from whoever publishes them."""
    for odd in (None, 5, "text", {"a": 1}, [None, 5, {"text": 7}], [[]]):
        sheet = dict.fromkeys(("input_summary", "cause", "output", "feedback", "tools"), odd)
        (like,) = ranked([passages_of({"sheet": sheet, "nodes": [], "counts": []})], "", None)
        assert 0 <= like.relevance <= 1
        assert row_of({"run": "r", "sheet": sheet, "path": "pay", "relevance": 1.0}, "text")[0] == "r"


def test_a_search_makes_vectors_within_a_bound_and_goes_on_with_the_next(db: Database) -> None:
    bag = BagOfWords()
    comparison = Comparison(bag, db)
    texts = [f"text number {n}" for n in range(MOST_NEW + 10)]
    first = compare(comparison, "number 3", texts)
    assert len(first.known) == MOST_NEW and first.model == "bag"
    assert len(bag.asked) == MOST_NEW + 1
    again = compare(comparison, "number 3", texts)
    assert len(again.known) == len(texts) and len(bag.asked) == len(texts) + 1, "none is made twice, nor the query's"
    assert first.known[3] == max(first.known.values())


def test_no_more_texts_are_compared_than_one_search_can(db: Database) -> None:
    comparison = Comparison(BagOfWords(), db)
    texts = [f"t{n}" for n in range(MOST_COMPARED + 50)]
    for _ in range(MOST_COMPARED // MOST_NEW + 2):
        found = compare(comparison, "t1", texts)
    assert len(found.known) == MOST_COMPARED
    assert found.cosines is not None and len(found.cosines) == len(texts)


def test_vectors_that_the_store_holds_are_not_made_again_and_no_other_models(db: Database) -> None:
    """C17, C44."""
    bag = BagOfWords()
    kept = ["kept one", "kept two"]

    def keep(conn: Any) -> None:
        models.register(conn, "bag", {}, DIMENSION)
        vectors.write(conn, "o", "bag", [content_hash(one) for one in kept], np.stack([vector(one) for one in kept]))

    db.write_now(keep)
    comparison = Comparison(bag, db)
    found = compare(comparison, "kept one", [*kept, "new"])
    assert bag.asked == ["kept one", "new"], "the query, and what is new"
    assert found.known[0] == pytest.approx(1.0, abs=1e-5)
    bag.name = "another"
    assert len(compare(comparison, "kept one", kept).known) == 2 and bag.asked[2:] == ["kept one", *kept]


def test_memory_of_vectors_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "KEPT", 20)
    bag = BagOfWords()
    comparison = Comparison(bag, db)
    for batch in range(5):
        assert len(compare(comparison, "q", [f"{batch} {n}" for n in range(15)]).known) == 15
    asked = len(bag.asked)
    compare(comparison, "q", [f"4 {n}" for n in range(15)])
    assert len(bag.asked) == asked, "what was compared last is there"
    compare(comparison, "q", [f"0 {n}" for n in range(15)])
    assert len(bag.asked) == asked + 15, "what was compared long ago is not"


def test_a_model_that_is_away_or_off_stands_in_no_ones_way(db: Database) -> None:
    bag = BagOfWords()
    bag.broken = True
    comparison = Comparison(bag, db)
    assert compare(comparison, "q", ["a"]) == (None, "", "the model is away")
    bag.broken = False
    assert compare(comparison, "a", ["a"]).known == {0: pytest.approx(1.0)}
    assert compare(comparison, "  ", ["a"]).cosines is None and compare(comparison, "a", []).cosines is None
    assert "switched off" in compare(Comparison(BagOfWords(""), db), "q", ["a"]).why


def test_a_text_that_says_nothing_to_the_model_is_not_known(db: Database) -> None:
    assert compare(Comparison(BagOfWords(), db), "a", ["a", "..."]).known.keys() == {0}


# --- memories


def memory(name: str, content: str) -> dict[str, Any]:
    return {"memory": name, "scope": "user/u", "content": content, "importance": 0.5}


def test_memories_are_found_by_meaning_where_words_are_not_shared() -> None:
    known = [memory("m1", "I live in Oslo"), memory("m2", "I prefer aisle seats"), memory("m3", "I drive a Volvo")]
    assert [hit.memory["memory"] for hit in rank(known, "他在哪里")] == []
    hits = rank(known, "他在哪里", {0: 0.45, 1: 0.1, 2: 0.29})
    assert [hit.memory["memory"] for hit in hits] == ["m1"] and hits[0].signals["meaning"] > 0
    assert rank(known, "aisle seats", {0: 0.3, 1: 0.7})[0].memory["memory"] == "m2"


@settings(max_examples=100)
@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=30), max_size=4), st.floats(-1, 1))
def test_scores_of_memories_stay_within_bounds(query: str, contents: list[str], cosine: float) -> None:
    known = [memory(f"m{n}", content) for n, content in enumerate(contents)]
    for meaning in (None, dict.fromkeys(range(len(known)), cosine), {0: cosine}):
        for hit in rank(known, query, meaning):
            assert 0 <= hit.score <= 1
            assert hit.score == pytest.approx(sum(hit.signals.values()), abs=1e-5)
