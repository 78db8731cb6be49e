"""The SDK's pure parts: ids, plain values, keys, answers, backoff, how a block's end becomes a reason."""

from __future__ import annotations

import asyncio
import math
import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refold.answers import Answered, Away, TooLarge, read_answer
from refold.core import ERROR_STREAK, RunCore, reason_of
from refold.delivery import Policy, backoff_s
from refold.envelope import Draft, Scope, envelope, flat
from refold.errors import Conflict
from refold.ids import idempotency_key, uuid7
from refold.plain import MAX_VALUE_BYTES, fit, plain
from refold.resume import Resume, resume_path

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.sets(st.integers()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


def test_uuid7_sorts_as_made_and_is_unique() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {uuid.UUID(text).version for text in made} == {7}


@given(anything)
def test_plain_is_always_json_and_a_fixed_point(value: object) -> None:
    """C22, C23, C26, C27: what an agent records is never what breaks it."""
    once = plain(value)
    orjson.dumps(once)
    assert plain(once) == once


def test_plain_values() -> None:
    deep: object = "bottom"
    for _ in range(5_000):
        deep = [deep]
    assert orjson.dumps(plain(deep)).count(b"[") < 64
    assert plain({"a": math.nan, "b": math.inf, 3: 10**30}) == {"a": None, "b": None, "3": hex(10**30)}
    assert plain({"x", "y"}) == plain({"y", "x"})
    assert plain("a\ud800b") == "a\ufffdb"


def test_large_output_is_head_tail_digest_and_below_the_limit_of_the_door() -> None:
    """C28: 20 MB of tool output, whatever its characters, fits the door's 1 MiB."""
    for text in ("line\n" * 4_000_000, "\u0000" * 3_000_000, "\U0001f468\u200d\U0001f469" * 500_000):
        cut = fit(text)
        assert cut["bytes"] == len(text.encode())
        assert text.startswith(cut["head"])
        assert text.endswith(cut["tail"])
        assert len(orjson.dumps(cut)) < 1 << 20
    assert fit("x" * MAX_VALUE_BYTES) == "x" * MAX_VALUE_BYTES


def test_idempotency_key_is_of_task_step_tool_and_arguments_only() -> None:
    key = idempotency_key("t", "s", "pay", {"a": 1, "b": [2]})
    assert key == idempotency_key("t", "s", "pay", {"b": [2], "a": 1})
    others = [("u", "s", "pay", {}), ("t", "r", "pay", {}), ("t", "s", "buy", {}), ("t", "s", "pay", {"a": 2})]
    assert len({key, *(idempotency_key(*other) for other in others)}) == 5


@pytest.mark.parametrize(
    ("error", "streak", "reason"),
    [
        (None, 0, "end_turn"),
        (KeyboardInterrupt(), 0, "interrupt"),
        (asyncio.CancelledError(), 9, "interrupt"),
        (SystemExit(1), 0, "interrupt"),
        (TimeoutError(), 0, "timeout"),
        (ValueError("x"), ERROR_STREAK - 1, "panic_stop"),
        (ValueError("x"), ERROR_STREAK, "error_streak"),
    ],
)
def test_reason_of_a_blocks_end(error: BaseException | None, streak: int, reason: str) -> None:
    assert reason_of(error, streak) == reason


def test_a_run_ends_once_and_its_settlement_goes_first_with_the_reason() -> None:
    core = RunCore(Scope(run="r", task="t"), settles="agent", about={})
    assert core.settle({"session_state": {}}) == []
    settlement, end = core.end(KeyboardInterrupt())
    assert (settlement.type, end.type) == ("settlement.recorded", "run.terminated")
    assert settlement.data["reason"] == "interrupt"
    assert settlement.data["interrupted"] is True
    assert core.end(None) == []
    assert [draft.type for draft in core.settle({"session_state": {}})] == ["settlement.recorded"]


def test_a_run_that_lost_its_task_says_nothing_more() -> None:
    assert RunCore(Scope(run="r"), settles="backend", about={}).end(Conflict()) == []


def test_a_settlement_of_a_run_that_the_backend_settles_is_refused() -> None:
    with pytest.raises(ValueError, match='settles="agent"'):
        RunCore(Scope(run="r"), settles="backend", about={}).settle({})


def test_envelope_and_inbox_form() -> None:
    event = envelope(Draft("note.written", {"key": "k", "content": 1}), Scope(org="o", run="r", task="t"), seq=3)
    assert event["seq"] == 3
    assert "user" not in event
    assert event["time"].endswith("+00:00")
    fields = flat(event)
    assert "seq" not in fields
    assert fields["data"] == '{"key":"k","content":1}'


def test_scope_names_are_checked_here_and_not_first_at_the_door() -> None:
    with pytest.raises(ValueError, match="`user`"):
        Scope(user="x" * 300)


def test_answers() -> None:
    body = orjson.dumps({"outcomes": [{"status": "stored"}, {"status": "refused", "code": "c", "message": "m"}]})
    answer = read_answer(200, body, 2)
    assert isinstance(answer, Answered)
    assert [outcome.verdict for outcome in answer.outcomes] == ["delivered", "refused"]
    assert read_answer(503, b"{}", 2, "7") == Away("HTTP 503: {}", 7.0)
    assert isinstance(read_answer(401, b"no", 2), Away)
    assert isinstance(read_answer(413, b'{"detail":"big"}', 2), TooLarge)
    single = read_answer(413, b'{"detail":"big"}', 1)
    assert isinstance(single, Answered)
    assert single.outcomes[0].verdict == "refused"
    assert isinstance(read_answer(200, b"<html>", 1), Away)


def test_backoff_doubles_to_a_bound() -> None:
    policy = Policy(backoff_s=0.1, backoff_max_s=5)
    assert backoff_s(0, policy, 0.5) == 0
    assert [round(backoff_s(n, policy, 0.5), 3) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert backoff_s(10_000, policy, 1.0) == pytest.approx(6.0)


def test_resume_document_and_path() -> None:
    """C19: any text is a task's name."""
    assert resume_path("a/b c?d") == "/v1/tasks/a%2Fb%20c%3Fd/resume"
    assert [resume_path(task) for task in ("..", ".", "v1.2")] == [
        "/v1/tasks/%2E%2E/resume", "/v1/tasks/%2E/resume", "/v1/tasks/v1.2/resume",
    ]  # fmt: skip
    finished = [{"step": "a", "result": 1}, {"step": "b"}]
    document = Resume.read("t", {"attempt": 2, "finished_steps": finished, "in_flight": [{"call_id": "c"}]})
    assert document.finished_steps == ("a", "b")
    assert document.results == {"a": 1, "b": None}
    assert document.in_flight[0].call_id == "c"
