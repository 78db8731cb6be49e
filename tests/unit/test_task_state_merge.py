"""Task state: order of arrival, batch sizes and dialogue make no difference where DESIGN says that they do not."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.task.costs import Costs, added, amounts
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import Folded, event, fold, record

ORDER = ("epoch", "n", "result_epoch", "result_n", "last_time", "first_time", "current_step")
"""Columns that tell the order of arrival itself."""

STEPS = ("a", "b", "c")
CALLS = ("c1", "c2", "c3")


def _events() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    step, call = st.sampled_from(STEPS), st.sampled_from(CALLS)
    return st.one_of(
        st.builds(lambda a: ("run.started", {"attempt": a, "goal": f"g{a}"}), st.integers(1, 3)),
        st.builds(lambda r: ("run.terminated", {"reason": r}), st.sampled_from(["end_turn", "lost", "interrupt"])),
        st.builds(lambda s: ("plan.updated", {"steps": [{"id": i} for i in s]}), st.lists(step, max_size=3)),
        st.builds(
            lambda t, s: (t, {"step": s}),
            st.sampled_from(["step.started", "step.completed", "step.failed", "step.skipped"]),
            step,
        ),
        st.builds(lambda c: ("tool.called", {"call_id": c, "name": "f"}), call),
        st.builds(lambda t, c: (t, {"call_id": c}), st.sampled_from(["tool.returned", "tool.failed"]), call),
        st.builds(lambda v: ("note.written", {"key": "n", "content": v, "expected_version": v}), st.integers(0, 2)),
        st.builds(lambda t: (t, {"blocker": "b"}), st.sampled_from(["blocker.raised", "blocker.cleared"])),
        st.builds(
            lambda resolved: (
                ("approval.resolved", {"approval": "p", "approved": True})
                if resolved
                else ("approval.requested", {"approval": "p"})
            ),
            st.booleans(),
        ),
        st.builds(
            lambda cost: ("model.responded", {"tokens_in": 3, "cost": cost}), st.sampled_from([0.1, 1e15, -7e-9])
        ),
        st.just(("message.added", {"role": "user", "content": "hello"})),
    )


HISTORIES = st.lists(st.tuples(_events(), st.sampled_from(["r1", "r2"]), st.sampled_from(["t1", "t2"])), max_size=40)


def _raws(history: list[tuple[tuple[str, dict[str, Any]], str, str]]) -> list[dict[str, Any]]:
    return [event(kind, n, task=task, run=run, **data) for n, ((kind, data), run, task) in enumerate(history)]


@settings(max_examples=75, deadline=None)
@given(HISTORIES, st.integers(1, 50))
def test_any_batch_split_gives_the_same_rows(history: list[Any], batch: int) -> None:
    raws = _raws(history)
    assert fold(TASK_STATE, raws, batch=batch).dump() == fold(TASK_STATE, raws, batch=1).dump()


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_counters_agree_with_the_rows_they_count(history: list[Any]) -> None:
    folded = fold(TASK_STATE, _raws(history))
    for task in ("t1", "t2"):
        key = f"task/{task}"
        heads = folded.table("tasks", key=key)
        if not heads:
            continue
        head, steps, calls = heads[0], folded.table("steps", key=key), folded.table("calls", key=key)
        done = {"completed", "skipped"}
        assert head["steps"] == len(steps)
        assert head["steps_done"] == sum(row["status"] in done for row in steps)
        assert head["steps_open"] == sum(row["place"] is not None and row["status"] not in done for row in steps)
        assert head["calls"] == sum(row["status"] != "" for row in calls)
        assert head["calls_in_flight"] == sum(row["status"] == "in_flight" for row in calls)
        assert head["blockers_open"] == sum(row["open"] for row in folded.table("blockers", key=key))
        assert head["approvals_pending"] == sum(row["open"] for row in folded.table("approvals", key=key))
        assert head["late"] == len(folded.table("late_events", key=key))


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_progress_does_not_depend_on_dialogue(history: list[Any]) -> None:
    recorded = record(_raws(history))
    silent = [r for r in recorded if r.event.type != "message.added"]
    assert Folded(TASK_STATE).fold(recorded).dump() == Folded(TASK_STATE).fold(silent).dump()


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_rows_asked_for_are_named_ahead_but_for_removed_steps_and_repeated_uses(history: list[Any]) -> None:
    plain = [item for item in history if item[0][0] not in ("plan.updated", "tool.called")]
    assert fold(TASK_STATE, _raws(plain)).unnamed == 0


PAIRS = [
    [("tool.called", {"call_id": "c1", "name": "f", "arguments": {"a": 1}}), ("tool.returned", {"call_id": "c1"})],
    [("step.started", {"step": "a", "title": "A"}), ("step.completed", {"step": "a", "summary": "done"})],
    [("blocker.raised", {"blocker": "b", "description": "x"}), ("blocker.cleared", {"blocker": "b", "detail": "y"})],
    [("approval.requested", {"approval": "p"}), ("approval.resolved", {"approval": "p", "approved": False})],
    [("run.started", {"goal": "g"}), ("run.terminated", {"reason": "interrupt"})],
    [("plan.updated", {"steps": [{"id": "a", "title": "A"}]}), ("step.completed", {"step": "a", "title": "x"})],
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0][0])
def test_the_two_ends_of_a_thing_merge_in_either_order(pair: list[tuple[str, dict[str, Any]]]) -> None:
    """C14."""
    raws = [event(kind, n, task="t1", run="r1", **data) for n, (kind, data) in enumerate(pair)]
    assert fold(TASK_STATE, raws).dump(without=ORDER) == fold(TASK_STATE, raws[::-1]).dump(without=ORDER)


def test_one_batch_in_any_order_merges_to_the_same_state() -> None:
    """C14: result before call, step before run, whatever the order."""
    raws = [
        event("tool.returned", 1, task="t1", run="r1", call_id="c1", result=7),
        event("tool.called", 2, task="t1", run="r1", call_id="c1", name="search", arguments={"q": 1}),
        event("step.started", 3, task="t1", run="r1", step="a"),
        event("run.started", 4, task="t1", run="r1", goal="g"),
        event("plan.updated", 5, task="t1", run="r1", steps=[{"id": "a"}, {"id": "b"}]),
    ]
    states = {fold(TASK_STATE, order).dump(without=ORDER) for order in permutations(raws)}
    assert len(states) == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e15, 1e15), max_size=6), st.integers(0, 2**32))
def test_costs_add_up_to_the_same_in_any_order(costs: list[float], seed: int) -> None:
    """Sums of floats differ by the order of their parts, and so would a task's rows."""
    totals = []
    for order in (costs, random.Random(seed).sample(costs, len(costs))):
        total: Costs | None = None
        for cost in order:
            total = added(total, "USD", cost)
        totals.append(total)
    assert totals[0] == totals[1]


def test_a_total_is_the_sum_of_what_was_written_and_goes_on_from_one_of_former_code() -> None:
    total = None
    for cost in (0.1, 0.2, 2e-8, 1e15, -1e15):
        total = added(total, "USD", cost)
    assert total == {"USD": "0.30000002"} and amounts(total) == {"USD": 0.30000002}
    former: Any = {"USD": 0.3}
    assert added(former, "USD", 0.1) == {"USD": "0.4"}, "a float, as rows held it before"
