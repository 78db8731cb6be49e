"""Task state: every rule of the fold, in small histories."""

from __future__ import annotations

from typing import Any

import pytest

from projections.task_state import TASK_STATE
from tests.unit.fold_runner import Folded, event, fold

Raws = list[dict[str, Any]]


class History:
    """Events of one task, in order of their writing."""

    def __init__(self, run: str = "r1", attempt: int = 1, **started: Any) -> None:
        self.raws: Raws = []
        self.run = run
        self.add("run.started", goal="book a flight", attempt=attempt, **started)

    def add(self, type_: str, /, **fields: Any) -> History:
        fields.setdefault("run", self.run)
        self.raws.append(event(type_, len(self.raws), task="t1", **fields))
        return self

    def resume(self, run: str, attempt: int, **started: Any) -> History:
        self.run = run
        return self.add("run.started", attempt=attempt, **started)

    def plan(self, *steps: str) -> History:
        return self.add("plan.updated", steps=[{"id": step} for step in steps])

    def done(self, *steps: str) -> History:
        for step in steps:
            self.add("step.started", step=step).add("step.completed", step=step)
        return self

    def end(self, reason: str = "end_turn", **fields: Any) -> History:
        return self.add("run.terminated", reason=reason, **fields)

    @property
    def folded(self) -> Folded:
        return fold(TASK_STATE, self.raws)

    @property
    def task(self) -> dict[str, Any]:
        return self.folded.one("tasks")


# --- status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", "completed"),
        ("interrupt", "interrupted"),
        ("timeout", "interrupted"),
        ("budget_exhausted", "interrupted"),
        ("lost", "interrupted"),
        ("panic_stop", "interrupted"),
        ("cycle_detected", "failed"),
        ("error_streak", "failed"),
    ],
)
def test_status_follows_from_the_reason_of_the_end(reason: str, status: str) -> None:
    task = History().end(reason).task
    assert (task["status"], task["reason"]) == (status, reason)


@pytest.mark.parametrize("outcome", ["completed", "blocked", "failed", "interrupted"])
def test_an_explicit_outcome_wins(outcome: str) -> None:
    assert History().plan("a").end("interrupt", outcome=outcome).task["status"] == outcome


def test_end_turn_completes_a_task_whose_planned_steps_are_done() -> None:
    assert History().plan("a", "b").done("a").add("step.skipped", step="b").end().task["status"] == "completed"


def test_end_turn_with_open_steps_leaves_the_task_blocked() -> None:
    task = History().plan("a", "b", "c").done("a").add("step.failed", step="b").end().task
    assert (task["status"], task["steps_open"], task["steps_done"]) == ("blocked", 2, 1)


def test_a_task_of_which_only_the_plan_is_known_is_planned() -> None:
    raws = [event("plan.updated", task="t1", steps=[{"id": "a"}])]
    assert fold(TASK_STATE, raws).one("tasks")["status"] == "planned"


def test_a_pending_approval_and_then_a_blocker_hold_the_task_up() -> None:
    history = History().add("blocker.raised", blocker="b").add("approval.requested", approval="p")
    assert history.task["status"] == "waiting_approval"
    history.add("approval.resolved", approval="p", approved=True)
    assert history.task["status"] == "blocked"
    history.add("blocker.cleared", blocker="b")
    assert history.task["status"] == "in_progress"


def test_a_turn_that_ends_on_an_open_question_waits_for_the_answer_and_is_not_complete_with_it() -> None:
    history = History().add("approval.requested", approval="p").end()
    assert history.task["status"] == "waiting_approval"
    history.add("approval.resolved", approval="p", approved=True)
    assert history.task["status"] == "blocked"


def test_a_resumed_run_takes_the_task_up_again() -> None:
    history = History().plan("a", "b").done("a").end("interrupt").resume("r2", 2)
    task = history.task
    assert (task["status"], task["run"], task["attempt"], task["goal"]) == ("in_progress", "r2", 2, "book a flight")
    assert history.done("b").end().task["status"] == "completed"


# --- ends, late events, lost runs ------------------------------------------------------------------------------------


def test_the_first_end_of_a_run_wins_and_what_follows_is_visible_as_late() -> None:
    """C15."""
    folded = History().end("interrupt").end("end_turn").add("step.completed", step="a").folded
    task, run = folded.one("tasks"), folded.one("runs")
    assert (task["status"], run["reason"], run["late"], task["late"]) == ("interrupted", "interrupt", 2, 2)
    assert [(row["type"], row["reason"]) for row in folded.table("late_events")] == [
        ("run.terminated", "end_turn"),
        ("step.completed", ""),
    ]
    assert folded.one("steps")["late"] is True


def test_a_late_completion_counts_as_done_and_undoes_nothing() -> None:
    folded = History().plan("a").end("interrupt").done("a").folded
    assert folded.one("steps")["status"] == "completed"
    assert folded.one("tasks")["status"] == "interrupted"
    assert folded.one("tasks")["steps_open"] == 0


def test_late_events_leave_a_finished_step_finished() -> None:
    history = History().plan("a").done("a").end()
    folded = history.add("step.started", step="a").add("step.failed", step="a", error="x").folded
    assert folded.one("steps")["status"] == "completed"


@pytest.mark.parametrize("reason", ["end_turn", "interrupt"])
def test_an_end_that_somebody_saw_replaces_lost(reason: str) -> None:
    """C15."""
    folded = History().end("lost").end(reason).folded
    assert folded.one("runs")["reason"] == reason
    assert folded.one("tasks")["late"] == 0


def test_a_sign_of_life_undoes_lost() -> None:
    """C15."""
    folded = History().end("lost").add("run.heartbeat").folded
    run = folded.one("runs")
    assert (run["over"], run["reason"], run["revived"]) == (False, "", 1)
    assert folded.one("tasks")["status"] == "in_progress"


def test_lost_stays_when_the_message_comes_from_outside_or_a_newer_attempt_is_under_way() -> None:
    assert History().end("lost").add("feedback.given", text="well?").task["status"] == "interrupted"
    history = History().end("lost").resume("r2", 2)
    history.run = "r1"
    folded = history.add("step.started", step="a").folded
    assert folded.one("runs", run="r1")["over"] is True
    assert folded.one("tasks")["late"] == 1


def test_a_second_lost_is_late() -> None:
    assert History().end("lost").end("lost").task["late"] == 1


# --- steps and plan --------------------------------------------------------------------------------------------------


def test_a_step_keeps_raw_times_summary_and_result() -> None:
    """C25."""
    folded = (
        History()
        .add("step.started", step="a", title="look", time="2026-03-01T10:00:00.500Z")
        .add("step.completed", step="a", summary="seen", result={"n": 3}, time="2026-03-01T10:00:00.200Z")
        .folded
    )
    step = folded.one("steps")
    assert (step["started"], step["ended"]) == ("2026-03-01T10:00:00.500Z", "2026-03-01T10:00:00.200Z")
    assert (step["title"], step["summary"], step["result"]) == ("look", "seen", {"n": 3})


def test_a_step_that_failed_can_be_tried_again() -> None:
    history = History().plan("a").add("step.started", step="a").add("step.failed", step="a", error="no seat")
    assert history.folded.one("steps")["error"] == "no seat"
    step = history.done("a").folded.one("steps")
    assert (step["status"], step["attempts"], step["error"]) == ("completed", 2, "")


def test_a_step_started_twice_and_ended_once_is_done() -> None:
    history = History().add("step.started", step="a").end("interrupt").resume("r2", 2).done("a")
    step = history.folded.one("steps")
    assert (step["status"], step["attempts"], step["run"]) == ("completed", 2, "r2")


def test_a_new_plan_keeps_what_began_and_drops_what_did_not() -> None:
    history = History().plan("a", "b", "c").done("a").add("step.started", step="b").plan("d", "a")
    folded = history.folded
    places = {row["step"]: (row["place"], row["status"]) for row in folded.table("steps")}
    assert places == {"a": (1, "completed"), "b": (None, "in_progress"), "d": (0, "planned")}
    task = folded.one("tasks")
    assert (task["steps"], task["steps_open"], task["steps_done"]) == (3, 1, 1)


def test_a_plan_may_tell_what_is_done_but_takes_nothing_back() -> None:
    history = History().done("a").add("plan.updated", steps=[{"id": "a"}, {"id": "b", "status": "completed"}])
    assert {row["step"]: row["status"] for row in history.folded.table("steps")} == {"a": "completed", "b": "completed"}
    assert history.end().task["status"] == "completed"


def test_a_step_named_twice_in_a_plan_has_its_first_place() -> None:
    folded = History().plan("a", "b", "a").folded
    assert folded.one("plan")["steps"] == ["a", "b"]
    assert folded.one("steps", step="a")["place"] == 0


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_is_in_flight_until_its_result_comes() -> None:
    history = History().add("tool.called", call_id="c1", name="pay", idempotency_key="k", side_effect=True)
    call = history.folded.one("calls")
    assert (call["status"], call["idempotency_key"], call["side_effect"]) == ("in_flight", "k", True)
    assert history.task["calls_in_flight"] == 1
    folded = history.add("tool.returned", call_id="c1", result={"ok": True}).folded
    assert folded.one("calls")["result"] == {"ok": True}
    assert folded.one("tasks")["calls_in_flight"] == 0


def test_a_late_result_is_accepted_once() -> None:
    """C20."""
    history = History().add("tool.called", call_id="c7", name="pay").end("lost").resume("r2", 2)
    history.run = "r1"
    history.add("tool.returned", call_id="c7", result=1, late=True)
    history.add("tool.returned", call_id="c7", result=2, late=True)
    folded = history.folded
    call = folded.one("calls")
    assert (call["status"], call["result"], call["late"], call["repeats"]) == ("returned", 1, True, 1)
    assert folded.one("runs", run="r1")["reason"] == "lost"


def test_a_result_stays_after_its_call_whatever_the_clocks_say() -> None:
    """C37."""
    folded = (
        History()
        .add("tool.called", call_id="c1", name="f", time="2026-03-01T10:00:08.482Z", seq=2)
        .add("tool.returned", call_id="c1", result=1, time="2026-03-01T10:00:08.441Z", seq=3)
        .folded
    )
    call = folded.one("calls")
    assert (call["epoch"], call["n"]) < (call["result_epoch"], call["result_n"])
    assert call["status"] == "returned"


def test_one_call_id_used_again_is_another_call() -> None:
    history = History()
    for answer in ("first", "second"):
        history.add("tool.called", call_id="c1", name="f", arguments={"q": answer})
        history.add("tool.returned", call_id="c1", result=answer)
    folded = history.folded
    assert [(row["nth"], row["arguments"], row["result"]) for row in folded.table("calls")] == [
        (1, {"q": "first"}, "first"),
        (2, {"q": "second"}, "second"),
    ]
    assert folded.one("tasks")["calls"] == 2


def test_a_call_announced_twice_is_one_call() -> None:
    history = History()
    for _ in range(2):
        history.add("tool.called", call_id="c1", name="f", arguments={"q": 1}, idempotency_key="k")
    assert history.task["calls_in_flight"] == 1


def test_large_results_are_kept_by_head_and_digest() -> None:
    folded = (
        History().add("tool.called", call_id="c", name="f").add("tool.returned", call_id="c", result="x" * 9_000).folded
    )
    result = folded.one("calls")["result"]
    assert (result["clipped"], result["chars"], len(result["head"])) == (True, 9_002, 4_000)


def test_names_of_any_length_fit_an_index() -> None:
    """C29."""
    name = "".join(chr(0x4E00 + i * 7 % 20_000) for i in range(3_000))
    folded = History().add("step.started", step=name).add("note.written", key=name, content=1).folded
    assert len(folded.one("steps")["step"].encode()) <= 96
    assert folded.one("steps")["full"] == folded.one("notes")["full"] == name


# --- notes, checkpoints, artifacts, feedback ------------------------------------------------------------------------


def test_a_note_written_with_an_outdated_version_is_a_visible_conflict() -> None:
    history = History().add("note.written", key="n", content="old", category="plan", ttl_s=60)
    history.add("note.written", key="n", content="new", expected_version=1)
    history.add("note.written", key="n", content="lost", expected_version=1)
    folded = history.folded
    note, conflict = folded.one("notes"), folded.one("note_conflicts")
    assert (note["content"], note["version"], note["conflicts"]) == ("new", 2, 1)
    assert (conflict["content"], conflict["expected_version"], conflict["found_version"]) == ("lost", 1, 2)


def test_a_note_that_must_be_new_is() -> None:
    folded = History().add("note.written", key="n", content=1, expected_version=0).folded
    assert folded.one("notes")["version"] == 1
    folded = History().add("note.written", key="n", content=1, expected_version=3).folded
    assert folded.table("notes") == []
    assert folded.one("tasks")["note_conflicts"] == 1


def test_a_checkpoint_comes_back_as_it_was() -> None:
    data = {"z": 1, "a": [1.50, None, "é"], "m": {"y": 0, "b": 1}}
    folded = (
        History().add("checkpoint.saved", data={"data": {"old": 1}}).add("checkpoint.saved", data={"data": data}).folded
    )
    assert [row["data"] for row in folded.table("snapshots")] == [
        '{"old":1}',
        '{"z":1,"a":[1.5,null,"é"],"m":{"y":0,"b":1}}',
    ]


def test_an_artifact_made_again_has_a_next_version() -> None:
    history = History().add("artifact.created", name="out.txt", digest="d1")
    artifact = history.add("artifact.created", name="out.txt", digest="d2").folded.one("artifacts")
    assert (artifact["version"], artifact["digest"]) == (2, "d2")


def test_identical_feedback_counts_once_and_an_orphan_is_visible() -> None:
    """C14, C47."""
    raws = [event("feedback.given", n, task="t9", run="ghost", text="bad", score=1, by="u") for n in range(2)]
    folded = fold(TASK_STATE, raws)
    assert folded.one("feedback")["n"] == 0
    assert (folded.one("tasks")["status"], folded.one("runs")["attempt"]) == ("planned", 0)


def test_feedback_on_a_scope_is_no_business_of_a_task() -> None:
    assert fold(TASK_STATE, [event("feedback.given", user="u1", text="short, please")]).rows == {}


def test_decisions_stay_and_tokens_add_up_over_runs() -> None:
    history = History().add("decision.made", chosen="train", alternatives=["plane"], rationale="cheaper")
    history.add("model.responded", tokens_in=10, tokens_out=2, cost=0.5).end("interrupt").resume("r2", 2)
    history.add("model.responded", tokens_in=5, tokens_out=1, cost=0.25, currency="EUR")
    folded = history.folded
    assert (folded.one("tasks")["tokens_in"], folded.one("tasks")["cost"]) == (15, {"USD": "0.5", "EUR": "0.25"})
    assert folded.one("runs", run="r2")["tokens_in"] == 5
    assert folded.one("decisions")["alternatives"] == ["plane"]
