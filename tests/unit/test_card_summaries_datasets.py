"""Every card of every recorded run says what was used of it, and nothing that its original does not say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.cards.check import check
from projections.cards.reading.facts import Fact, facts_of
from projections.cards.summary import LIMIT, LIMIT_IN_USE, summarize
from projections.memory_cards import MEMORY_CARDS
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun
from tests.unit.fold_runner import fold

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or Path(__file__).resolve().parents[3] / "shared" / "data")


def folder(name: str) -> Path:
    if not (DATASETS / name).is_dir():
        pytest.skip(f"no real material at {DATASETS / name}: set REFOLD_DATASETS")
    return DATASETS / name


@pytest.mark.parametrize(
    ("format", "name", "most"), [("chat", "tau-bench-airline", 60), ("swe-agent", "swe-agent", 20)]
)
def test_cards_of_recorded_runs_are_true_both_ways(format: str, name: str, most: int) -> None:
    found = [item for file in files(folder(name), FORMATS[format]) for item in read_file(file, FORMATS[format])]
    runs = [item for item in found if isinstance(item, ImportedRun)][:most]
    cards = fold(MEMORY_CARDS, [event for run in runs for event in run.events], batch=1_000).table("cards")
    in_use = 0
    for card in cards:
        if card["source"] == "decision":
            continue
        verdict = check(card["summary"], [Fact(*fact) for fact in card["facts"]], card["used"] or ())
        assert verdict.good, (verdict, card["summary"])
        assert len(card["summary"]) <= (LIMIT_IN_USE if card["used"] else LIMIT)
        in_use += len(card["used"] or ())
    assert len(cards) > 20 and in_use > 20


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def test_what_people_said_in_two_languages_is_told_truly() -> None:
    said = {text for file in folder("memorybank").rglob("*.json") for text in texts(json.loads(file.read_text()))}
    for text in sorted(said)[::3]:
        facts = facts_of(text)
        summary = summarize(facts)
        assert check(summary, facts).foreign == () and len(summary) <= LIMIT
    assert len(said) > 1_000
