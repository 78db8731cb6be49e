"""What a run's own events prove, and what it was worth learning from: pure, and stable under order and repetition."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from events import door
from events.event import Position, Recorded
from events.registry import decode_payload
from services.reactors.derived import derived_id
from services.reactors.evidence import LINES_A_KIND, clip, evidence
from services.reactors.experience import Hindsight
from services.reactors.trajectory import Trajectory, trajectory

SECRET_WORDS = "the user's own words"


def run_of(*events: tuple[str, dict[str, Any]]) -> Trajectory:
    return trajectory(recorded(*events))


def recorded(*events: tuple[str, dict[str, Any]]) -> list[Recorded]:
    result = []
    for n, (kind, data) in enumerate(events):
        event = door.admit({"id": f"e{n}", "type": kind, "run": "r1", "task": "t1", "data": data})
        result.append(Recorded(0, Position(1, n), event, decode_payload(event)))
    return result


def called(call: str, name: str, arguments: Any = None, **more: Any) -> tuple[str, dict[str, Any]]:
    return "tool.called", {"call_id": call, "name": name, "arguments": arguments, **more}


def returned(call: str, result: Any = None) -> tuple[str, dict[str, Any]]:
    return "tool.returned", {"call_id": call, "result": result}


def failed(call: str, error: str) -> tuple[str, dict[str, Any]]:
    return "tool.failed", {"call_id": call, "error": error}


def ended(reason: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "run.terminated", {"reason": reason, **more}


def step(kind: str, name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"step.{kind}", {"step": name, **more}


def test_evidence_names_files_commands_side_effects_errors_and_what_is_open() -> None:
    run = run_of(
        called("c1", "edit_file", {"path": "src/a.py", "content": SECRET_WORDS}),
        returned("c1", {"ok": True}),
        called("c2", "bash", {"command": "pytest -q"}),
        returned("c2", {"exit_code": 1, "output": "1 failed"}),
        called("c3", "send_mail", {"to": "x"}, side_effect=True, idempotency_key="k3"),
        returned("c3"),
        called("c4", "charge_card", {"amount": 3}, side_effect=True, idempotency_key="k4"),
        step("completed", "s1", title="Edit", summary="changed a.py"),
        step("started", "s2", title="Test"),
        ("artifact.created", {"name": "report", "uri": "file:///r.md"}),
        ("decision.made", {"chosen": "pytest", "rationale": "it is there"}),
        ended("timeout"),
    )
    assert evidence(run) == [
        "side effect without an answer, check before repeating: charge_card (c4), idempotency key k4",
        "side effect done: send_mail (c3), idempotency key k3",
        "file changed: src/a.py (edit_file)",
        "artifact: report: file:///r.md",
        "command: pytest -q: exit 1: 1 failed",
        "step completed: Edit: changed a.py",
        "step not finished: Test",
        "error: bash (c2): exit 1",
        "decided: pytest: it is there",
    ]


def test_evidence_holds_no_secret_but_the_keys_that_repeating_needs() -> None:
    """C21: in commands, in what they wrote, in errors; an idempotency key is none, however it looks."""
    token, key = "0123456789abcdef0123456789abcdef01234567", "f" * 16 + "0a1b2c3d4e5f6071"
    run = run_of(
        called("c1", "bash", {"command": f"curl -H 'Authorization: Bearer {token}' https://ci:{token}@host"}),
        returned("c1", {"output": "ok\napi_key: sk-xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"}),
        called("c2", "pay", {}, side_effect=True, idempotency_key=key),
        failed("c3", f"refused: password={token}"),
        ended("error_streak"),
    )
    told = "\n".join(evidence(run))
    assert token not in told and "AAAA1111" not in told and "cccc3333" not in told
    assert f"pay (c2), idempotency key {key}" in told and "curl" in told


def test_evidence_names_the_files_of_a_patch_and_the_end_of_what_a_command_wrote() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n*** Add File: src/b.py\n+y\n"
    diff = "--- a/c.py\n+++ b/c.py\n@@ -1 +1 @@\n"
    run = run_of(
        called("c1", "apply_patch", {"input": patch}),
        returned("c1", "done"),
        called("c2", "patch", {"diff": diff}),
        returned("c2"),
        called("c3", "bash", {"command": "pytest"}),
        returned("c3", "....\n\n12 passed in 3 s\n"),
    )
    assert evidence(run) == [
        "file changed: src/a.py (apply_patch)",
        "file changed: src/b.py (apply_patch)",
        "file changed: c.py (patch)",
        "command: pytest: ok: 12 passed in 3 s",
    ]


def test_evidence_keeps_the_latest_of_many_and_counts_the_rest() -> None:
    calls = [pair for n in range(40) for pair in (called(f"c{n}", "bash", {"command": f"make {n}"}), returned(f"c{n}"))]
    lines = evidence(run_of(*calls, ended("lost")))
    assert lines[0] == f"command: {40 - LINES_A_KIND} earlier ones are not listed"
    assert lines[1:] == [f"command: make {n}: ok" for n in range(40 - LINES_A_KIND, 40)]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_is_never_cut_inside_a_visible_character(cut: int) -> None:
    """C30."""
    family, accented = "👨‍👩‍👧", "e\u0301"
    for whole in (family, accented, "👍🏽", "𠀀"):
        shown = clip("a" * 5 + whole * 3, 5 + cut).removesuffix("…")
        assert shown[5:] in {"", whole, whole * 2, whole * 3}


def test_results_before_their_calls_give_the_same_evidence() -> None:
    """C14, C37."""
    pair = [called("c1", "bash", {"command": "ls"}), returned("c1", {"exit_code": 0})]
    assert evidence(run_of(*pair)) == evidence(run_of(*reversed(pair))) == ["command: ls: ok"]


def test_the_first_ending_counts_and_only_lost_gives_way() -> None:
    """C15."""
    first = run_of(ended("interrupt"), ended("end_turn"))
    assert first.ending is not None
    assert first.ending.payload.reason == "interrupt"
    replaced = run_of(ended("lost"), ended("end_turn"))
    assert replaced.ending is not None
    assert replaced.ending.payload.reason == "end_turn"
    alive = run_of(ended("lost"), ("run.heartbeat", {}))
    assert alive.ending is None
    judged = run_of(ended("lost"), ("feedback.given", {"text": "hm"}))
    assert judged.ending is not None


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([ended("end_turn")], "completed"),
        ([step("started", "s1"), ended("end_turn")], "blocked"),
        ([step("started", "s1"), step("completed", "s1"), ended("end_turn")], "completed"),
        ([ended("budget_exhausted")], "interrupted"),
        ([ended("error_streak")], "failed"),
        ([ended("error_streak", outcome="completed")], "completed"),
        ([], "interrupted"),
    ],
)
def test_outcomes_follow_the_table(events: list[tuple[str, dict[str, Any]]], outcome: str) -> None:
    assert run_of(*events).outcome() == outcome


def _labels(run: Trajectory) -> dict[str, str]:
    return {node.node: node.label for node in Hindsight(run).nodes}


def test_a_straight_run_is_success_throughout() -> None:
    run = run_of(
        ("plan.updated", {"steps": [{"id": "s1"}]}),
        step("started", "s1"),
        called("c1", "search", step="s1"),
        returned("c1", ["hit"]),
        step("completed", "s1"),
        ended("end_turn"),
    )
    assert set(_labels(run).values()) == {"success"}
    assert list(_labels(run)) == ["plan", "step/s1", "call/c1", "result"]


def test_what_was_got_over_is_recoverable_and_what_came_of_it_deviated() -> None:
    run = run_of(
        step("started", "s1"),
        called("c1", "search", step="s1"),
        failed("c1", "429 slow down"),
        called("c2", "search", step="s1"),
        returned("c2", ["hit"]),
        step("completed", "s1"),
        ended("end_turn"),
    )
    assert _labels(run) == {
        "step/s1": "deviated_success",
        "call/c1": "recoverable_failure",
        "call/c2": "deviated_success",
        "result": "deviated_success",
    }
    causes = {node.node: node.cause for node in Hindsight(run).nodes}
    assert causes["call/c1"] == "429 slow down"


def test_the_last_failure_of_a_failed_run_is_fatal() -> None:
    run = run_of(called("c1", "x"), failed("c1", "a"), called("c2", "y"), failed("c2", "b"), ended("error_streak"))
    assert _labels(run) == {"call/c1": "recoverable_failure", "call/c2": "fatal_failure", "result": "fatal_failure"}
    assert Hindsight(run).sheet["cause"] == "b"


def test_what_an_interruption_left_open_is_no_evidence_about_a_tool() -> None:
    """C20: a call without an answer is never a success."""
    run = run_of(called("c1", "x"), returned("c1"), called("c7", "x"), step("started", "s1"), ended("panic_stop"))
    assert _labels(run) == {
        "step/s1": "unfinished",
        "call/c1": "success",
        "call/c7": "unfinished",
        "result": "unfinished",
    }
    assert [(c.tool, c.label, c.count) for c in Hindsight(run).counts] == [("x", "success", 1)]


def test_counts_carry_no_words() -> None:
    run = run_of(
        ("run.started", {"goal": SECRET_WORDS}),
        called("c1", "mail", {"to": SECRET_WORDS}),
        failed("c1", SECRET_WORDS),
        ended("error_streak", detail=SECRET_WORDS),
    )
    counts = Hindsight(run).counts
    assert SECRET_WORDS not in orjson.dumps(msgspec.to_builtins(counts)).decode()
    assert SECRET_WORDS in orjson.dumps(Hindsight(run).sheet).decode()


def test_derived_ids_are_stable_apart_and_ordered_by_time() -> None:
    base = {"id": "e1", "type": "run.terminated", "run": "r1", "data": {"reason": "lost"}}
    early = door.admit({**base, "time": "2026-03-01T10:00:00Z"})
    late = door.admit({**base, "time": "2026-03-01T10:00:00.001Z"})
    other = door.admit({**base, "time": "2026-03-01T10:00:00Z", "org": "acme"})
    assert derived_id("settler", early) == derived_id("settler", early)
    assert derived_id("settler", early) < derived_id("settler", late)
    ids = [derived_id("settler", early), derived_id("settler", early, "x"), derived_id("hindsight", early)]
    assert len({*ids, derived_id("settler", other)}) == 4
    assert all(text[14] == "7" and text[19] in "89ab" for text in ids)
