"""Fusion finds more than words alone and than vectors alone, in dialogues that no weight was chosen by.

Two of our own in the form of LoCoMo, one English and one Chinese, of 90 turns and 34 questions each, most of which are
worded otherwise than their answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from services.bench.dialogues import Dialogue, read_dialogues
from services.bench.retrieval import CUTS, figures, measure
from services.embedding.choice import Choice
from services.embedding.model import Embedder, Matrix
from services.embedding.models import load

DIALOGUES = Path(__file__).parent / "dialogues"


def dialogue(language: str) -> Dialogue:
    (found,) = read_dialogues(DIALOGUES / f"{language}.json", "locomo")
    return found


@pytest.fixture(scope="module")
def default() -> Embedder:
    return load(Choice(form="light"))


def recall(language: str, embedder: Embedder) -> dict[str, dict[str, float]]:
    found = figures(measure(dialogue(language), embedder, lambda count: None))
    for way in found.values():
        assert list(way.values()) == sorted(way.values()), "more places never hold less"
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
def test_fusion_finds_more_than_either(default: Embedder, language: str) -> None:
    found = recall(language, default)
    for k in CUTS[1:]:
        name = f"recall@{k}"
        assert found["fusion"][name] >= max(found["BM25"][name], found["dense"][name]), (name, found)
    assert found["fusion"]["recall@10"] > max(found["BM25"]["recall@10"], found["dense"]["recall@10"]) + 0.05


class Silent:
    """A model that says nothing of any text."""

    name, dimension = "silent", 16

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        return np.zeros((len(texts), self.dimension), dtype=np.float32)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_model_that_says_nothing_leaves_what_words_find(language: str) -> None:
    """C17."""
    found = recall(language, Silent())
    for name in ("recall@5", "recall@10"):
        assert found["fusion"][name] >= found["BM25"][name]
