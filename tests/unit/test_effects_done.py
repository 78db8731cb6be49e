"""A side effect whose result the log has is not done again, though the step around it is repeated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from refold import UncertainEffect
from refold.blocks import CallCore
from refold.core import RunCore
from refold.envelope import Scope
from refold.resume import Call, Resume
from sqlalchemy import create_engine

from projections.queries.tasks import resume_document
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import event, fold


def resume_of(*raws: dict[str, Any]) -> dict[str, Any]:
    """The resume document of a task after these events."""
    folded = fold(TASK_STATE, raws)
    engine = create_engine("sqlite://")
    with engine.connect() as conn:
        for table in TASK_STATE.tables:
            table.create(conn)
        folded.store(conn)
        document = resume_document(conn, "default", "t", now=datetime(2026, 8, 1, tzinfo=UTC))
    engine.dispose()
    assert document is not None
    return document


def called(n: int, call: str, step: str, *, side_effect: bool = True) -> dict[str, Any]:
    data = {"call_id": call, "name": "pay", "step": step, "idempotency_key": f"key {call}", "side_effect": side_effect}
    return event("tool.called", n, task="t", run="r", data=data)


def returned(n: int, call: str) -> dict[str, Any]:
    return event("tool.returned", n, task="t", run="r", call_id=call, result=f"receipt {call}")


def test_effects_within_unfinished_steps_are_told_with_their_results() -> None:
    document = resume_of(
        event("step.started", 1, task="t", run="r", step="open"),
        called(2, "done", "open"), returned(3, "done"),
        called(4, "in flight", "open"),
        called(5, "a read", "open", side_effect=False), returned(6, "a read"),
        called(7, "failed", "open"), event("tool.failed", 8, task="t", run="r", call_id="failed", error="no"),
        called(9, "of a finished step", "closed"), returned(10, "of a finished step"),
        event("step.completed", 11, task="t", run="r", step="closed"),
        called(12, "outside any step", ""), returned(13, "outside any step"),
    )  # fmt: skip
    told = {call["call_id"]: call["result"] for call in document["effects_done"]}
    assert told == {"done": "receipt done", "outside any step": "receipt outside any step"}
    assert [call["call_id"] for call in document["in_flight"]] == ["in flight"]
    read = Resume.read("t", document)
    done = read.effect_done("key done")
    assert done is not None and done.result == "receipt done"
    assert read.effect_done("key in flight") is None


def core(*, done: bool, in_flight: bool = False, side_effect: bool = True) -> CallCore:
    """A call of a resumed run, whose effect an earlier attempt did, or may have done."""
    earlier = Call(call_id="c", name="pay", run="r1", idempotency_key="k", side_effect=True, result="receipt")
    run = RunCore(Scope(task="t", run="r2"), settles="backend", about={})
    flying = (earlier,) if in_flight else ()
    left = Resume("t", attempt=1, in_flight=flying, effects_done=(earlier,) if done else ())
    run.learn(left, left)
    return CallCore(run, "pay", {"n": 1}, side_effect=side_effect, step="s", key="k")


def test_without_a_check_the_log_has_the_word() -> None:
    call = core(done=True)
    assert not call.must_ask(has_check=False)
    assert (call.done, call.result) == (True, "receipt")
    assert call.opening(None) == [], "it is not called again"
    assert call.closing(None) == [], "and its result is in the log already"


def test_what_is_under_way_again_is_in_doubt_whatever_came_before() -> None:
    with pytest.raises(UncertainEffect):
        core(done=True, in_flight=True).must_ask(has_check=False)


def test_the_check_knows_better_than_the_log() -> None:
    call = core(done=True)
    assert call.must_ask(has_check=True)
    call.found(None)
    assert not call.done, "it was undone since"
    call.found(True)
    assert (call.done, call.result) == (True, "receipt"), "done, says the check; what it gave, the log"
    call.found("receipt of the ledger")
    assert call.result == "receipt of the ledger"


def test_a_call_without_side_effect_is_repeated() -> None:
    call = core(done=True, side_effect=False)
    assert not call.must_ask(has_check=False)
    assert not call.done
    assert [draft.type for draft in call.opening(None)] == ["tool.called"]
