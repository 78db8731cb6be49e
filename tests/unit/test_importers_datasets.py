"""The importers on real material, where it is at hand: every file is read and every event passes the door."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from events import door
from events.event import Event
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun, Skipped

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or Path(__file__).resolve().parents[3] / "shared" / "data")


def load(format: str, folder: str) -> tuple[list[ImportedRun], list[Skipped]]:
    path = DATASETS / folder
    if not path.is_dir():
        pytest.skip(f"no real material at {path}: set REFOLD_DATASETS")
    found = [item for file in files(path, FORMATS[format]) for item in read_file(file, FORMATS[format])]
    runs = [item for item in found if isinstance(item, ImportedRun)]
    outcomes = door.admit_all([event for run in runs for event in run.events])
    assert [str(outcome) for outcome in outcomes if not isinstance(outcome, Event)] == []
    ids = [event["id"] for run in runs for event in run.events]
    assert len(ids) == len(set(ids))
    assert len({run.run for run in runs}) == len(runs)
    return runs, [item for item in found if isinstance(item, Skipped)]


def count(runs: list[ImportedRun]) -> Counter[str]:
    return Counter(event["type"] for run in runs for event in run.events)


def test_tau_bench() -> None:
    runs, _ = load("chat", "tau-bench-airline")
    types = count(runs)
    assert (len(runs), types["tool.called"]) == (200, 1164)
    assert types["tool.returned"] + types["tool.failed"] == 1164
    outcomes = Counter(run.events[-1]["data"]["outcome"] for run in runs)
    assert outcomes == {"failed": 116, "completed": 84}


def test_swe_agent() -> None:
    runs, skipped = load("swe-agent", "swe-agent")
    assert len(runs) == 14
    assert not skipped
    assert count(runs)["tool.called"] >= 122


def test_relay() -> None:
    runs, skipped = load("relay", "relay")
    types = count(runs)
    assert (len(runs), types["decision.made"], types["run.terminated"]) == (218, 522, 218)
    assert {item.reason for item in skipped} == {
        "a trace of changed lines, not a run",
        "a compacted digest of other runs, not a run",
    }
