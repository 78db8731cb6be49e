"""What beliefs foretell: the figures themselves, and runs whose end is known to follow from their path."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from events import door
from events.door import MAX_EVENT_BYTES
from events.event import Event, Position, Recorded
from events.registry import decode_payload
from services.bench import beliefs
from services.bench.scoring import Predicted, auc, brier, reliability
from services.cli.main import app
from services.importers.run import ImportedRun, RunWriter
from services.reactors.hindsight import ended_run, experience_of
from tests.unit.test_importers_datasets import load


def test_auc_by_hand() -> None:
    """Pairs of (came, other): (0.9, 0.1) and (0.9, 0.4) right, (0.4, 0.1) right, (0.4, 0.4) half: 3.5 of 4."""
    area = auc([Predicted(0.9, True), Predicted(0.4, True), Predicted(0.1, False), Predicted(0.4, False)])
    assert area is not None
    assert area.value == 3.5 / 4
    assert 0 <= area.low < area.value < area.high <= 1
    assert auc([Predicted(0.9, True)]) is None


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=30))
def test_auc_depends_on_the_order_alone(told: list[tuple[float, bool]]) -> None:
    predicted = [Predicted(*one) for one in told]
    area, reverse = auc(predicted), auc([Predicted(-one.probability, one.came) for one in predicted])
    assert (area is None) == (reverse is None) == (len({one.came for one in predicted}) == 1)
    assert area is None or reverse is None or area.value == pytest.approx(1 - reverse.value)
    assert sum(b.number for b in reliability(predicted, beliefs.EDGES)) == len(predicted)


def test_brier_and_reliability_by_hand() -> None:
    predicted = [Predicted(1.0, True), Predicted(0.95, False), Predicted(0.1, False)]
    assert brier(predicted) == pytest.approx((0 + 0.9025 + 0.01) / 3)
    assert reliability(predicted, (0.0, 0.5, 0.9, 1.0)) == [(0.0, 0.5, 1, 0.1, 0.0), (0.9, 1.0, 2, 0.975, 0.5)]


def run_of(task: int, trial: int, tools: list[str], *, failed: bool, broken: str = "") -> ImportedRun:
    writer = RunWriter("chat", f"task-{task}-trial-{trial}-0123456789", "anybody")
    writer.add("run.started", {"goal": f"number {task}"})
    for n, tool in enumerate(tools):
        writer.add("tool.called", {"call_id": f"c{n}", "name": tool, "arguments": {"n": n}})
        error = {"call_id": f"c{n}", "error": "503"}
        writer.add(
            "tool.failed" if tool == broken else "tool.returned", error if tool == broken else {"call_id": f"c{n}"}
        )
    writer.add("run.terminated", {"reason": "end_turn", "outcome": "failed" if failed else "completed"})
    return writer.done()


def trials(seed: int, *, fatal: bool) -> list[beliefs.Told]:
    """Four trials of 12 tasks; ``fatal``: a run fails when it shreds, else by the toss of a coin."""
    chance, told = random.Random(seed), []
    for trial in range(4):
        for task in range(12):
            shreds = chance.random() < 0.5
            tools = ["look", "shred" if shreds else "copy", "send"]
            failed = shreds if fatal else chance.random() < 0.5
            told.append(beliefs.told(run_of(task, trial, tools, failed=failed)))
    return [one for one in told if one is not None]


def row(measured: dict[str, Any], moment: str, way: str) -> dict[str, Any]:
    return next(row for row in measured["rows"] if (row["moment"], row["way"]) == (moment, way))


def test_a_fatal_tool_is_foretold_once_it_is_used_and_not_before() -> None:
    measured = beliefs.measure(trials(1, fatal=True))
    assert (measured["built_from"], measured["foretold"]) == (36, 12)
    for way in ("paths", "tools of paths"):
        assert row(measured, "last call", way)["auc"][0] == 1.0
        assert row(measured, "last call", way)["auc_new_tasks"] == 1.0
        assert row(measured, "first call", way)["auc"][0] == 0.5
    chosen = [one["way"] for one in measured["rows"] if one["chosen"] and one["moment"] == "last call"]
    assert chosen == [measured["runs"]["way"]]
    assert row(measured, "last call", chosen[0])["brier"] < measured["brier_of_base_rate"]


def test_a_coin_is_not_foretold() -> None:
    areas = []
    for seed in range(8):
        told = trials(seed, fatal=False)
        believed = beliefs.build([one for one in told if one.group != "3"])
        last = [one for one in told if one.group == "3"]
        area = auc([Predicted(beliefs.by_paths(believed, one, "last call"), one.failed) for one in last])
        areas += [area.value] if area else []
    assert 0.3 < sum(areas) / len(areas) < 0.7


def test_the_outcome_of_the_run_itself_never_shows() -> None:
    """The same run, told to have failed and told not to: what is foretold of it is the same."""
    believed = beliefs.build(trials(1, fatal=True))
    ended = [beliefs.told(run_of(99, 3, ["look", "copy"], failed=failed)) for failed in (True, False)]
    for way in beliefs.WAYS.values():
        for moment in beliefs.MOMENTS:
            told = [way(believed, one, moment) for one in ended if one is not None]
            assert len(told) == 2 and told[0] == told[1]


def test_confidence_of_a_broken_tool_is_low_and_of_an_unknown_one_neither() -> None:
    known = [beliefs.told(run_of(n, 0, ["look", "mail"], failed=False, broken="mail")) for n in range(8)]
    believed = beliefs.build([one for one in known if one is not None])
    assert believed.confidence["mail"] < 0.3 < 0.7 < believed.confidence["look"]


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="two groups"):
        beliefs.measure(trials(1, fatal=True)[:1])


@pytest.mark.parametrize(
    ("format", "folder"), [("chat", "tau-bench-airline"), ("relay", "relay"), ("swe-agent", "swe-agent")]
)
def test_every_recorded_run_is_looked_back_on(format: str, folder: str) -> None:
    runs, _ = load(format, folder)
    for run in runs:
        events = [door.admit(dict(raw)) for raw in run.events]
        ended = ended_run([recorded for n, event in enumerate(events) if (recorded := _recorded(n, event))])
        assert ended is not None, run.run
        for level, data in experience_of(ended, user="u", agent="a").items():
            raw = {"id": level, "type": "experience.recorded", "user": "u", "agent": "a", "data": data}
            assert door.admit(raw).key == f"{level}/{'u' if level == 'user' else 'a'}"
            assert len(orjson.dumps(data)) < MAX_EVENT_BYTES


def _recorded(n: int, event: Event) -> Recorded | None:
    payload = decode_payload(event)
    return None if payload is None else Recorded(0, Position(1, n), event, payload)


def test_the_command_measures_a_file_and_refuses_what_holds_no_trials(tmp_path: Path) -> None:
    def run(task: int, trial: int) -> dict[str, Any]:
        tool = ("shred", "copy")[(task + trial) % 2]
        calls = [{"id": "c1", "function": {"name": tool, "arguments": "{}"}}]
        talk = [
            {"role": "user", "content": f"do {task}"},
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ]
        return {"task_id": task, "trial": trial, "reward": float(tool == "copy"), "traj": talk}

    def command(path: Path) -> Result:
        return CliRunner().invoke(app, ["bench", "beliefs", "--data", str(path), "--json"])

    everything, one = tmp_path / "runs.json", tmp_path / "one.json"
    everything.write_bytes(orjson.dumps([run(task, trial) for trial in range(3) for task in range(6)]))
    one.write_bytes(orjson.dumps([run(0, 0)]))
    told = command(everything)
    assert told.exit_code == 0
    assert row(orjson.loads(told.stdout), "last call", "tools of paths")["auc"][0] == 1.0
    refused = command(one)
    assert refused.exit_code != 0
    assert "it takes two groups of runs" in str(refused.exception)
