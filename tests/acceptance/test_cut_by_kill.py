"""Runs cut after every tenth event by ``kill -9`` of the whole backend: they resume to the state of the uncut ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.cut_runs import (
    SETS,
    cuts,
    finished_steps,
    in_flight,
    progress,
    resumed,
    runs_of,
    task_of,
)
from tests.chaos.workload import Run
from tests.instance import Instance, running_instance, until

UNCUT = "uncut"
BESIDE = ("read", "session_state", "pinned_evidence", "workbench")
"""Not of the task's own state, or (the workbench) without what came late."""


def publish(up: Instance, org: str, events: Run) -> None:
    """Publish as an organisation. What is stored already is as good."""
    answer = up.http.post("/v1/events", json=events, headers={"X-Refold-Org": org})
    assert answer.status_code == 200, answer.text
    outcomes = answer.json()["outcomes"]
    assert {outcome["status"] for outcome in outcomes} <= {"stored", "duplicate"}, outcomes


def resume(up: Instance, org: str, task: str) -> dict[str, Any]:
    """What the next attempt is told; it holds all that is durable of the task."""

    def ask() -> httpx.Response | None:
        answer = up.http.get(f"/v1/tasks/{task}/resume", headers={"X-Refold-Org": org})
        return None if answer.status_code == 503 else answer  # not that far yet, after a kill: ask again

    answer = until(ask, 60)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["read"]["reached"]
    return document


def without_positions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_positions(item) for name, item in value.items() if name != "position"}
    return [without_positions(item) for item in value] if isinstance(value, list) else value


def state(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in BESIDE}


def kill(up: Instance) -> None:
    up.process.kill()
    up.process.wait()


def chosen() -> list[Run]:
    """Of each set that is at hand, the longest run of at most 60 events."""
    found = []
    for name in SETS:
        runs = [run for run in runs_of(name) if 20 < len(run) <= 60]
        found += [max(runs, key=len)] if runs else []
    return found


@pytest.mark.timeout(300)
def test_runs_cut_by_kills_of_the_backend_resume_to_the_same_state(tmp_path: Path) -> None:
    """C1, C43: killed when the first parts are answered, and again when half of the rest is; sent again, all of it."""
    runs = chosen()
    cut = [(run, at, ("plain", "resumed")[at // 10 % 2]) for run in runs for at in cuts(run)]
    rests = {"plain": lambda run, at: run[at:], "resumed": resumed}
    with running_instance(tmp_path / "data") as up:
        for run, at, form in cut:
            publish(up, f"{form}-{at}", run[:at])
        kill(up)
    with running_instance(tmp_path / "data") as up:
        for run, at, form in cut:
            document = resume(up, f"{form}-{at}", task_of(run))
            assert {step["step"] for step in document["finished_steps"]} == finished_steps(run[:at])
            assert {call["call_id"] for call in document["in_flight"]} == in_flight(run[:at])
        for run, at, form in cut[::2]:
            publish(up, f"{form}-{at}", rests[form](run, at))
        kill(up)
    with running_instance(tmp_path / "data") as up:
        for run in runs:
            publish(up, UNCUT, run)
        for run, at, form in cut:
            publish(up, f"{form}-{at}", rests[form](run, at))
        whole = {task_of(run): state(resume(up, UNCUT, task_of(run))) for run in runs}
        for run, at, form in cut:
            document = state(resume(up, f"{form}-{at}", task_of(run)))
            same = without_positions if form == "plain" else progress
            assert same(document) == same(whole[task_of(run)]), f"{task_of(run)} cut after {at}, {form}"
