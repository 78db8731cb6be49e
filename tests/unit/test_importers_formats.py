"""The importers, each on a small file of our own: what becomes of every part of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from events import door
from events.errors import Refused, SetupError
from events.event import Event
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun, Skipped

FIXTURES = Path(__file__).parent.parent / "fixtures" / "imports"


def load(format: str, name: str, agent: str = "") -> list[ImportedRun]:
    found = list(read_file(FIXTURES / format / name, FORMATS[format], agent))
    assert all(isinstance(item, ImportedRun) for item in found), found
    return [item for item in found if isinstance(item, ImportedRun)]


def of_type(run: ImportedRun, *types: str) -> list[dict[str, Any]]:
    return [event["data"] for event in run.events if event["type"] in types]


def admitted(run: ImportedRun) -> list[Event]:
    outcomes = door.admit_all(run.events)
    assert not [str(outcome) for outcome in outcomes if isinstance(outcome, Refused)]
    return [outcome for outcome in outcomes if isinstance(outcome, Event)]


@pytest.mark.parametrize(
    ("format", "name"),
    [
        (folder.name, str(file.relative_to(folder)))
        for folder in sorted(FIXTURES.iterdir())
        for file in sorted(folder.rglob("*.*"))
        if ".trace." not in file.name
    ],
)
def test_every_event_passes_the_door_with_a_stable_time_ordered_id(format: str, name: str) -> None:
    for run, again in zip(load(format, name), load(format, name), strict=True):
        assert run == again
        assert len(admitted(run)) == len(run.events)
        ids = [event["id"] for event in run.events]
        assert ids == sorted(set(ids))
        assert {UUID(one).version for one in ids} == {7}
        counted = [event["seq"] for event in run.events if "seq" in event]
        assert counted == list(range(1, len(counted) + 1))
        assert run.events[0]["type"] == "run.started"


def test_chat_pairs_results_with_calls_though_an_id_repeats() -> None:
    (run,) = load("chat", "one.json")
    assert Counter(event["type"] for event in run.events) == {
        "run.started": 1,
        "message.added": 4,
        "tool.called": 2,
        "tool.returned": 1,
        "tool.failed": 1,
        "run.terminated": 1,
    }
    started = run.events[0]["data"]
    assert started["goal"] == "Please renew loan L-204 until 3 May."
    assert started["system_prompt"]["content"] == "You look after a small library."
    assert [call["call_id"] for call in of_type(run, "tool.called")] == ["call_1", "call_1#2"]
    assert of_type(run, "tool.called")[1]["arguments"] == {"loan": "L-204", "until": "2025-05-03"}
    assert [end["call_id"] for end in of_type(run, "tool.returned", "tool.failed")] == ["call_1", "call_1#2"]
    # the conversation ends with the user's word: nobody says that the agent was done
    assert of_type(run, "run.terminated")[0]["reason"] == "interrupt"


def test_chat_file_of_many_runs_carries_rewards_and_users() -> None:
    first, second = load("chat", "many.json")
    assert first.run.startswith("task-7-trial-0-")
    assert {event["user"] for event in first.events} == {"reader_12"}
    assert [of_type(run, "feedback.given")[0]["score"] for run in (first, second)] == [1.0, 0.0]
    assert [of_type(run, "run.terminated")[0]["outcome"] for run in (first, second)] == ["completed", "failed"]


def test_chat_json_lines_of_records_and_of_messages() -> None:
    assert [run.run.rpartition("-")[0] for run in load("chat", "lines.jsonl")] == ["talk-1", "talk-2"]
    lines = b'{"role": "user", "content": "hi"}\n{"role": "assistant", "content": "hello"}\n'
    (run,) = FORMATS["chat"].read("talk", lines, "")
    assert isinstance(run, ImportedRun)
    assert [said["content"] for said in of_type(run, "message.added")] == ["hi", "hello"]
    assert of_type(run, "run.terminated")[0]["reason"] == "end_turn"


def test_chat_keeps_arguments_that_no_event_may_hold_as_text() -> None:
    """C26, C27: too deep or too large values in an argument text stay text, to the byte."""
    for text in ('{"order_id": 9999999999999999999999}', "[" * 5000 + "]" * 5000, "{not json", '{"a": NaN}'):
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}],
        }
        raw = json.dumps([message]).encode()
        (run,) = FORMATS["chat"].read("t", raw, "")
        assert isinstance(run, ImportedRun)
        assert of_type(run, "tool.called")[0]["arguments"] == text
        admitted(run)


def test_swe_agent_steps_calls_and_the_issue() -> None:
    (run,) = load("swe-agent", "fix.traj")
    started = of_type(run, "run.started")[0]
    assert started["goal"] == "hours(90) is 1.5, it should be 1"
    assert started["model"] == "small-model"
    assert [(call["name"], call["arguments"]) for call in of_type(run, "tool.called")] == [
        ("bash", {"command": "cat clock.py"}),
        ("edit", {"command": "edit 2:2"}),
        ("submit", {"command": "submit"}),
    ]
    assert [event["type"] for event in run.events if event["type"].startswith("step.")] == [
        "step.started", "step.completed", "step.started", "step.failed", "step.started", "step.completed"
    ]  # fmt: skip
    assert of_type(run, "step.completed")[0]["result"] == {"working_dir": "/clock"}
    assert of_type(run, "model.responded") == [{"tokens_in": 300, "tokens_out": 40, "cost": 0.01}]
    assert of_type(run, "run.terminated") == [{"reason": "end_turn", "outcome": "completed", "detail": "submitted"}]


def test_swe_agent_control_characters_survive_in_the_defined_form() -> None:
    """C22: NUL and lone surrogates become U+FFFD and the event is marked; the rest of the run is unharmed."""
    (run,) = load("swe-agent", "history.traj")
    returned = [event for event in admitted(run) if event.type == "tool.returned"]
    assert '"clock.py\ufffd\\u001b[0m 🕒"' in returned[0].data
    assert returned[0].sanitized
    assert of_type(run, "run.terminated")[0]["reason"] == "interrupt"


def test_mini_swe_agent_reads_commands_from_code_blocks() -> None:
    (run,) = load("swe-agent", "mini.traj.json")
    assert [call["arguments"]["command"] for call in of_type(run, "tool.called")] == [
        "ls | wc -l",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ]
    assert of_type(run, "run.started")[0]["goal"] == "count the files"
    assert of_type(run, "run.terminated")[0]["reason"] == "end_turn"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("submitted", "end_turn"),
        ("submitted (exit_cost)", "budget_exhausted"),
        ("exit_context", "budget_exhausted"),
        ("LimitsExceeded", "budget_exhausted"),
        ("exit_command_timeout", "timeout"),
        ("exit_format", "error_streak"),
        ("exit_error", "panic_stop"),
    ],
)
def test_swe_agent_exit_status_gives_the_reason(status: str, reason: str) -> None:
    raw = f'{{"trajectory": [{{"action": "ls", "observation": "a"}}], "info": {{"exit_status": "{status}"}}}}'.encode()
    (run,) = FORMATS["swe-agent"].read("x", raw, "")
    assert isinstance(run, ImportedRun)
    assert of_type(run, "run.terminated")[0]["reason"] == reason


def test_relay_decisions_steps_and_settlement() -> None:
    (run,) = load("relay", "traj_tide.json")
    assert run.events[0]["time"] == "2026-02-01T08:00:00.000Z"
    assert {event["agent"] for event in run.events} == {"lead", "writer"}
    assert of_type(run, "decision.made")[0]["chosen"] == "harbour office"
    assert [step["step"] for step in of_type(run, "step.started", "step.completed", "step.skipped")] == [
        "print",
        "print",
        "send",
    ]
    assert of_type(run, "note.written")[-1]["content"] == {"text": "short work", "confidence": 0.9}
    settled = of_type(run, "settlement.recorded")[0]
    assert settled["session_state"]["key_decisions"] == ["harbour office"]
    assert settled["learnings"] == ["moon first"]
    assert [artifact["name"] for artifact in of_type(run, "artifact.created")] == ["tide.py", "0a1b2c3d"]


def test_relay_same_id_with_other_content_is_another_run() -> None:
    (first,), (second,) = load("relay", "traj_tide.json"), load("relay", "again/traj_tide.json")
    assert first.run != second.run
    assert not {event["id"] for event in first.events} & {event["id"] for event in second.events}
    assert of_type(second, "step.failed")[0]["error"] == "exited with code 1"
    assert of_type(second, "run.terminated")[0]["reason"] == "error_streak"


def test_relay_trace_file_is_skipped_with_its_reason() -> None:
    (skipped,) = read_file(FIXTURES / "relay" / "traj_tide.trace.json", FORMATS["relay"])
    assert skipped == Skipped("traj_tide.trace", "a trace of changed lines, not a run")


def test_large_output_is_cut_to_head_tail_and_digest() -> None:
    """C28: a 20 MB tool result becomes an event that the door accepts."""
    messages = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "head" + "x" * 20_000_000 + "tail"},
    ]
    (run,) = FORMATS["chat"].read("big", json.dumps(messages).encode(), "")
    assert isinstance(run, ImportedRun)
    result = of_type(run, "tool.returned")[0]["result"]
    assert result.startswith("head")
    assert result.endswith("tail")
    assert "characters left out, blake2b " in result
    admitted(run)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_other_encodings(encoding: str) -> None:
    (run,) = FORMATS["chat"].read("t", '[{"role": "user", "content": "café 北京"}]'.encode(encoding), "")
    assert isinstance(run, ImportedRun)
    assert of_type(run, "message.added")[0]["content"] == "café 北京"


def test_bytes_that_are_no_text_stay_visible() -> None:
    (run,) = FORMATS["chat"].read("t", b'[{"role": "user", "content": "caf\xe9"}]', "")
    assert isinstance(run, ImportedRun)
    said = next(event for event in admitted(run) if event.type == "message.added")
    assert "caf\ufffd" in said.data
    assert said.sanitized


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b"3",
        b"{}",
        b"[]",
        b"\x00\xff",
        b'{"messages": 3, "chapters": 4, "history": 5}',
    ],
)
def test_a_file_that_is_none_is_skipped_with_a_reason(format: str, raw: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(raw)
    found = list(read_file(file, FORMATS[format]))
    assert all(isinstance(item, Skipped) and item.reason for item in found)
    assert found or raw == b"[]"


def test_files_of_a_folder_in_a_stable_order(tmp_path: Path) -> None:
    found = files(FIXTURES / "swe-agent", FORMATS["swe-agent"])
    assert [file.name for file in found] == ["fix.traj", "history.traj", "mini.traj.json"]
    with pytest.raises(SetupError, match="does not exist"):
        files(tmp_path / "none", FORMATS["chat"])
    with pytest.raises(SetupError, match=r"no \.json file"):
        files(tmp_path, FORMATS["relay"])


def test_a_synthetic_clock_can_begin_at_another_time_and_changes_no_id() -> None:
    (run,), (relay,) = load("chat", "one.json"), load("relay", "traj_tide.json")
    assert run.events[0]["time"] == "2024-01-01T00:00:00.000Z"
    moved = run.starting_at(datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert [event["time"] for event in moved.events[:2]] == ["2026-03-01T10:00:00.000Z", "2026-03-01T10:00:01.000Z"]
    before, after = admitted(run), admitted(moved)
    assert [(event.id, event.digest) for event in before] == [(event.id, event.digest) for event in after]
    assert relay.starting_at(datetime(2026, 3, 1, tzinfo=UTC)) == relay


def test_the_agent_can_be_named() -> None:
    (run,) = load("chat", "one.json", agent="librarian")
    assert {event["agent"] for event in run.events} == {"librarian"}
    assert run.run != load("chat", "one.json")[0].run
