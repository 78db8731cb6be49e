"""Dialogues with questions, as benches read them, and how recall is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from events.errors import Refused
from projections.retrieval.words import words
from services.bench.dialogues import Dialogue, Passage, Question, read_dialogues
from services.bench.retrieval import figures, held_out, measure
from services.embedding.model import Matrix, unit_rows


class Bag:
    """An embedder that knows words alone."""

    name, dimension = "bag", 32

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        rows = np.zeros((len(texts), self.dimension))
        for row, text in zip(rows, texts, strict=True):
            for word in words(text):
                row[sum(word.encode()) % self.dimension] += 1
        return unit_rows(rows)


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Two users, in the second of two languages; days of the first are asked about."""
    days = {"2023-05-02": [("I saw clocks in a museum", "how nice"), ("bye", "bye")], "2023-05-03": [("rain", "oh")]}
    told = {day: [{"query": q, "response": r} for q, r in turns] for day, turns in days.items()}
    bank = {"Ann ": {"history": told}, "Ben": {"history": {"2023-05-02": [{"query": "I ran", "response": "far"}]}}}
    asked = [
        {"Ann": ["What did I see on May 2nd?", "我在5月3日看到了什么？", "Do I like cats?"]},
        {"Ben": ["On June 1st?"]},
    ]
    (tmp_path / "memory_bank_en.json").write_text(json.dumps(bank))
    (tmp_path / "probing_questions_en.jsonl").write_text("\n".join(map(json.dumps, asked)) + "\n")
    return tmp_path


def test_days_in_questions_are_their_evidence_and_are_taken_out(bank: Path) -> None:
    (dialogue,) = read_dialogues(bank, "memorybank")
    assert [passage.name for passage in dialogue.passages] == [
        "Ann/2023-05-02#0", "Ann/2023-05-02#1", "Ann/2023-05-03#0", "Ben/2023-05-02#0",
    ]  # fmt: skip
    assert dialogue.questions == [
        Question("What did I see ?", frozenset({"Ann/2023-05-02#0", "Ann/2023-05-02#1"}), "Ann"),
        Question("我 看到了什么？", frozenset({"Ann/2023-05-03#0"}), "Ann"),
    ]


def test_evidence_of_a_file_takes_the_place_of_days(bank: Path) -> None:
    told = bank / "evidence.json"
    told.write_text(json.dumps({"0": [["2023-05-02#0"], [], ["2023-05-03#0"]], "1": [["2024-01-01#0"]]}))
    (dialogue,) = read_dialogues(bank, "memorybank", told)
    assert [question.text for question in dialogue.questions] == ["What did I see on May 2nd?", "Do I like cats?"]
    assert dialogue.all_of_evidence


def test_locomo_names_turns_and_times(tmp_path: Path) -> None:
    turn = {"speaker": "Ann", "dia_id": "D10:1", "text": "hello", "blip_caption": "a dog"}
    early = {"speaker": "Ben", "dia_id": "D2:1", "text": "bye"}
    conversation = {"session_10": [turn], "session_2": [early], "session_2_date_time": "1:56 pm on 8 May, 2023"}
    asked = [{"question": "who?", "evidence": ["D2:1; D10:1", "D9:9"]}, {"question": "no?", "evidence": []}]
    data = tmp_path / "one.json"
    data.write_text(json.dumps({"sample_id": "s1", "conversation": conversation, "qa": asked}))
    (dialogue,) = read_dialogues(data, "locomo")
    assert dialogue.passages == [
        Passage("D2:1", "Ben: bye", "2023-05-08T13:56:00+00:00", "session_2"),
        Passage("D10:1", "Ann: hello (shares a picture: a dog)", session="session_10"),
    ]
    assert dialogue.questions == [Question("who?", frozenset({"D2:1", "D10:1"}), "s1")]


def test_other_data_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    for path, form in ((tmp_path / "x.json", "locomo"), (tmp_path, "memorybank"), (tmp_path / "none", "locomo")):
        with pytest.raises(Refused):
            read_dialogues(path, form)


def test_recall_is_the_share_of_evidence_found_or_whether_any_was() -> None:
    passages = [Passage(str(n), text) for n, text in enumerate(["a red boat", "a red bus", "green", "blue", "white"])]
    question = Question("red", frozenset({"0", "2"}), "u")
    steps: list[int] = []
    (one,) = measure(Dialogue("d", passages, [question], all_of_evidence=True), Bag(), steps.append)
    (other,) = measure(Dialogue("d", passages, [question], all_of_evidence=False), Bag(), steps.append)
    assert sum(steps) == 2 * (len(passages) + 1)
    assert one.recall["BM25"][1] == 0.5 and other.recall["BM25"][1] == 1.0 and one.recall["BM25"][5] == 1.0
    assert figures([one, other])["BM25"]["recall@1"] == 0.75 and figures([]) == {}
    assert held_out([question, Question("", frozenset(), "v"), Question("", frozenset(), "w")]) == {"v"}
