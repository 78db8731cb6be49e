"""The settler against a real model server: what goes over the wire, what comes of each answer, and only once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from events import door
from events.database import Database
from events.event import Event
from events.types.run import TerminationReason
from services.models.client import Models
from services.models.routes import Route, Routes
from services.reactors import settler
from services.reactors.loop import ReactorLoop
from services.reactors.reactor import Outside
from services.reactors.settler import SETTLER
from services.reactors.settling.conversation import NO_RESULT
from tests.integration.reactor_lab import (
    ArchiveOutlet,
    checkpoints_at_end,
    look_often,
    loop_of,
    put,
    run_until,
    sqlite_log,
    stored,
)  # fmt: skip
from tests.model_server import CUT, ModelServer, Reply, good, model_server, problem, says

PROMPT = "You are a careful agent."
BAD = (
    says('{"session_state": {"goal": "fix', finish="length"),
    says('{"session_state": {"goal": 7}}'),
    says("I would rather tell you in prose."),
    says(""),
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "db", SETTLER) as log:
        yield log


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "BACKOFF_S", (0.01,))
    look_often(monkeypatch)


def a_run(name: str, *, reason: str = "end_turn", org: str = "acme", **started: Any) -> list[Event]:
    """A run with a prompt, turns, a call with its result, one without, and an end."""
    names = {"org": org, "run": name, "task": f"task-{name}", "session": f"s-{name}", "user": "u1", "agent": "coder"}
    raws = [
        (
            "run.started",
            {"goal": "fix it", "model": "m", "system_prompt": {"digest": "d", "content": PROMPT}, **started},
        ),
        ("message.added", {"role": "system", "content": PROMPT}),
        ("message.added", {"role": "user", "content": f"please fix {name}, 谢谢"}),
        ("message.added", {"role": "assistant", "content": "I look."}),
        ("tool.called", {"call_id": "c1", "name": "bash", "arguments": {"command": "make"}}),
        ("step.completed", {"step": "s1", "summary": "built"}),
        ("tool.returned", {"call_id": "c1", "result": {"exit_code": 0}}),
        ("tool.called", {"call_id": "c2", "name": "mail", "arguments": {}, "side_effect": True}),
        ("run.terminated", {"reason": reason}),
    ]
    return [door.admit({**names, "id": f"{name}-{n}", "type": t, "data": d}) for n, (t, d) in enumerate(raws)]


def turns(name: str) -> list[dict[str, Any]]:
    """What the model of ``a_run`` saw."""

    def calls(call_id: str, tool: str, arguments: str) -> list[dict[str, Any]]:
        return [{"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}}]

    return [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": f"please fix {name}, 谢谢"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls("c1", "bash", '{"command":"make"}')},
        {"role": "tool", "tool_call_id": "c1", "content": '{"exit_code":0}'},
        {"role": "assistant", "content": None, "tool_calls": calls("c2", "mail", "{}")},
        {"role": "tool", "tool_call_id": "c2", "content": NO_RESULT},
    ]


def settling(
    db: Database, server: ModelServer, work: Callable[[Callable[..., ReactorLoop]], Any], **route: Any
) -> None:
    """Run ``work`` with what makes loops of the settler that know a model."""
    budgets, outside = route.pop("tokens_a_day", {}), route.pop("outside", {})
    routes = Routes(models=[Route(model="m", base_url=server.url, **route)], tokens_a_day=budgets)

    async def scenario() -> None:
        models = Models(routes)
        limits = Outside(models, 60.0, 1.0, **outside)

        def new(owner: str = "w1", **more: Any) -> ReactorLoop:
            return loop_of(db, ArchiveOutlet(db), SETTLER, owner=owner, outside=limits, **more)

        try:
            await work(new)
        finally:
            await models.close()

    asyncio.run(scenario())


def settle_all(db: Database, server: ModelServer, **route: Any) -> None:
    """Settle every run there is."""
    settling(db, server, lambda new: run_until([new()], lambda: checkpoints_at_end(db, "settler")), **route)


def data_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in events]


def test_for_every_reason_the_model_sees_what_the_run_saw(db: Database, server: ModelServer) -> None:
    """Same system prompt, same turns, no tool schemas, and one instruction after them."""
    reasons = get_args(TerminationReason)
    for reason in reasons:
        put(db, *a_run(reason, reason=reason, tools={"digest": "t", "content": [{"name": "bash"}]}))
    settle_all(db, server)
    by_run = {body["messages"][1]["content"].split()[2].rstrip(","): body for body in server.requests}
    assert set(by_run) == set(reasons) and len(server.requests) == len(reasons)
    for reason, body in by_run.items():
        assert body["messages"][:-1] == turns(reason)
        assert body["messages"][-1]["role"] == "user" and reason in body["messages"][-1]["content"]
        assert body["model"] == "m" and "tools" not in body
    recorded = {event.run: json.loads(event.data) for event in stored(db, "settlement.recorded")}
    assert {run: data["reason"] for run, data in recorded.items()} == {reason: reason for reason in reasons}
    interrupted = {run for run, data in recorded.items() if data["interrupted"]}
    assert interrupted == {"interrupt", "budget_exhausted", "timeout", "panic_stop", "lost"}
    assert {(d["by"], d["attempts"], d["tokens_in"], d["tokens_out"]) for d in recorded.values()} == {
        ("backend", 1, 100, 20)
    }


def test_each_bad_answer_is_quoted_and_asked_again_more_strictly(db: Database, server: ModelServer) -> None:
    server.plan = [*BAD[:3], good()]
    put(db, *a_run("r1"))
    settle_all(db, server)
    asked = [body["messages"][-1]["content"] for body in server.requests]
    assert len(asked) == 4
    assert [body["messages"][:-1] for body in server.requests] == [turns("r1")] * 4
    for text, quoted in zip(
        asked[1:], ("cut off at its longest", "$.session_state.goal", "rather tell you"), strict=True
    ):
        assert "Your last answer could not be used: " in text and quoted in text
    assert ["third time" in text for text in asked] == [False, False, True, False]
    assert "last time of asking" in asked[3]
    tried = data_of(stored(db, "settlement.attempted"))
    assert [(t["attempt"], t.get("failed")) for t in tried] == [
        (1, "invalid_output"), (2, "invalid_output"), (3, "invalid_output"), (4, None),
    ]  # fmt: skip
    assert all(t["tokens_in"] == 100 and t["latency_ms"] > 0 and t["model"] == "m" for t in tried)
    (recorded,) = data_of(stored(db, "settlement.recorded"))
    assert (recorded["attempts"], recorded["tokens_in"], recorded["tokens_out"]) == (4, 400, 80)


@pytest.mark.parametrize(
    ("replies", "reason", "calls"),
    [
        (BAD, "invalid_output", 4),
        ([says("", refusal="no")] * 4, "refused", 4),
        ([CUT] * 4, "unreachable", 4),
        ([problem(500)] * 4, "unreachable", 4),
        ([problem(429, Retry_After="0")] * 4, "rate_limited", 4),
        ([problem(400, "maximum context length")] * 4, "context_too_long", 4),
        ([problem(401)], "no_model", 1),
    ],
)
def test_what_no_model_answers_is_settled_by_evidence(
    db: Database, server: ModelServer, replies: Sequence[Reply], reason: str, calls: int
) -> None:
    server.plan = list(replies)
    put(db, *a_run("r1", reason="timeout"))
    settle_all(db, server)
    assert len(server.requests) == calls
    assert len(stored(db, "settlement.attempted")) == calls
    assert stored(db, "settlement.recorded") == []
    (degraded,) = data_of(stored(db, "settlement.degraded"))
    assert (degraded["degraded"], degraded["attempts"], degraded["reason"]) == (reason, calls, "timeout")
    assert degraded["evidence"][0] == "side effect without an answer, check before repeating: mail (c2)"
    assert "session_state" not in degraded


def test_a_model_without_a_route_and_an_org_without_budget_make_no_call(db: Database, server: ModelServer) -> None:
    """Never another model than the run's own; a run that never started has none."""
    put(db, *a_run("other", model="m2"), *a_run("spent", org="poor"), *a_run("unstarted")[1:])
    settle_all(db, server, tokens_a_day={"poor": 0})
    assert server.requests == []
    found = {event.run: json.loads(event.data)["degraded"] for event in stored(db, "settlement.degraded")}
    assert found == {"other": "no_model", "spent": "budget", "unstarted": "no_model"}


def test_a_conversation_that_is_too_long_for_its_endpoint_is_cut_further(db: Database, server: ModelServer) -> None:
    events = a_run("r1")
    big = {"call_id": "c1", "result": "line of output\n" * 20_000}
    names = {"org": "acme", "run": "r1", "task": "task-r1", "session": "s-r1"}
    events[6] = door.admit({**names, "id": "r1-big", "type": "tool.returned", "data": big})
    server.plan = [problem(400, "too many tokens"), good()]
    put(db, *events)
    settle_all(db, server, context_tokens=16_384)
    first, second = (body["messages"][3]["content"] for body in server.requests)
    assert len(second) < len(first) < 40_000
    assert "characters are left out here; the whole is in event r1-big]" in first
    assert first.startswith("line of output") and first.endswith("line of output\n")
    assert [len(body["messages"]) for body in server.requests] == [7, 7]
    assert len(stored(db, "settlement.recorded")) == 1


def test_a_prompt_that_is_only_named_is_found_in_the_tasks_other_runs(db: Database, server: ModelServer) -> None:
    first = a_run("r1")
    again = [
        door.admit({"org": "acme", "run": "r2", "task": "task-r1", "id": f"r2-{n}", "type": t, "data": d})
        for n, (t, d) in enumerate([
            ("run.started", {"attempt": 2, "model": "m", "system_prompt": {"digest": "d"}}),
            ("message.added", {"role": "user", "content": "go on"}),
            ("run.terminated", {"reason": "end_turn"}),
        ])
    ]  # fmt: skip
    put(db, *first[:-1], *again)
    settle_all(db, server)
    (body,) = server.requests
    assert body["messages"][:-1] == [{"role": "system", "content": PROMPT}, {"role": "user", "content": "go on"}]


def test_what_an_answer_says_of_others_goes_nowhere(db: Database, server: ModelServer) -> None:
    """Another tenant's names in an answer are text at most: whose a settlement is follows from the run."""
    foreign = {"content": "Bob of globex pays late.", "org": "globex", "user": "bob", "scope": "org", "agent": "x"}
    server.plan = [good(memories=[foreign], org="globex", session="s-other", version=9, by="agent")]
    put(db, *a_run("r1"))
    settle_all(db, server)
    (event,) = stored(db, "settlement.recorded")
    assert (event.org, event.user, event.session, event.key) == ("acme", "u1", "s-r1", "session/s-r1")
    data = json.loads(event.data)
    assert data["memories"] == [{"content": "Bob of globex pays late."}]
    assert (data["version"], data["by"]) == (1, "backend") and "org" not in data


def test_chinese_stays_chinese_and_code_does_not_break_it(db: Database, server: ModelServer) -> None:
    state = {
        "goal": "修复构建",
        "current_phase": '已完成：`print("你好\\n{}")` 可用',
        "key_decisions": ["用 \\ 转义 ```"],
    }
    text = (
        "好的，结果如下：\n```json\n"
        + json.dumps({"session_state": state}, ensure_ascii=False, indent=1)
        + "\n```\n完毕。"
    )
    server.plan = [says(text)]
    put(db, *a_run("r1"))
    settle_all(db, server)
    (recorded,) = data_of(stored(db, "settlement.recorded"))
    assert {name: recorded["session_state"][name] for name in state} == state


@pytest.mark.parametrize(
    "answer",
    [
        '{"session_state": {"goal": "g", "plan_snapshot": [9999999999999999999999]}}',
        '{"session_state": {}}',
        *('{"session_state": {"goal": "g"}, "memories": [{"content": "c", "confidence": ' + bad + "}]}"
          for bad in ("85", "-1", '"0.9"', "null", "NaN")),
    ],
)  # fmt: skip
def test_what_the_door_would_refuse_is_asked_again(db: Database, server: ModelServer, answer: str) -> None:
    """C27, C35: an answer that could not be stored is no answer, and never a settlement that is lost."""
    server.plan = [says(answer), good()]
    put(db, *a_run("r1"))
    settle_all(db, server)
    assert [t.get("failed") for t in data_of(stored(db, "settlement.attempted"))] == ["invalid_output", None]
    assert len(stored(db, "settlement.recorded")) == 1


def test_an_answer_larger_than_an_event_may_be_is_asked_again(db: Database, server: ModelServer) -> None:
    """C28: with the limit in what is quoted."""
    server.plan = [good(reflections=["so long " * 1_000]), good()]
    put(db, *a_run("r1"))
    settle_all(db, server, outside={"max_event_bytes": 4_000})
    assert len(stored(db, "settlement.recorded")) == 1
    assert "4,000" in server.requests[1]["messages"][-1]["content"] or "4000" in str(server.requests[1]["messages"][-1])


def test_killed_anywhere_it_settles_each_run_once_and_counts_its_calls(db: Database, server: ModelServer) -> None:
    """C5, C8: at most four calls' answers are counted for a run, however many lives the settler has."""
    chance = random.Random(7)
    server.answer = lambda body: chance.choice([good(), good(after_s=0.05), BAD[1], CUT])
    runs = [f"r{n}" for n in range(12)]
    for run in runs:
        put(db, *a_run(run))

    async def work(new: Callable[..., ReactorLoop]) -> None:
        for life in range(6):
            task = asyncio.create_task(new(f"w{life}", lease_s=0.5).run(asyncio.Event()))
            await asyncio.sleep(chance.uniform(0.02, 0.2))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await run_until([new("last", lease_s=0.5)], lambda: checkpoints_at_end(db, "settler"))

    settling(db, server, work)
    settled = [event.run for kind in ("recorded", "degraded") for event in stored(db, f"settlement.{kind}")]
    assert sorted(settled) == sorted(runs)
    tried = Counter(event.run for event in stored(db, "settlement.attempted"))
    assert set(tried) == set(runs) and max(tried.values()) <= 4


def test_two_workers_and_a_model_slower_than_their_leases(db: Database, server: ModelServer) -> None:
    """C8."""
    server.answer = lambda body: good(after_s=1.2)
    put(db, *a_run("r1"), *a_run("r2"))

    async def work(new: Callable[..., ReactorLoop]) -> None:
        loops = [new(f"w{n}", lease_s=0.5) for n in range(2)]
        await run_until(loops, lambda: checkpoints_at_end(db, "settler"))

    settling(db, server, work)
    assert sorted(event.run for event in stored(db, "settlement.recorded")) == ["r1", "r2"]


def test_settled_again_on_purpose_it_is_a_new_version(db: Database, server: ModelServer) -> None:
    """C45: and asked for once more with the same version, nothing happens."""
    put(db, *a_run("r1"))
    names = {"org": "acme", "run": "r1", "task": "task-r1", "session": "s-r1"}
    for n, version in enumerate((2, 2, 3)):
        asked = {**names, "id": f"again-{n}", "type": "settlement.requested", "data": {"version": version}}
        settle_all(db, server)
        put(db, door.admit(asked))
    settle_all(db, server)
    recorded = stored(db, "settlement.recorded")
    assert [data["version"] for data in data_of(recorded)] == [1, 2, 3]
    assert [event.causation for event in recorded] == ["r1-8", "again-0", "again-2"]
    assert [body["messages"][:-1] for body in server.requests] == [turns("r1")] * 3


def test_an_agent_that_could_not_settle_itself_is_not_asked_for_again(db: Database, server: ModelServer) -> None:
    events = a_run("r1", settles="agent", settle_deadline_s=600)
    names = {"org": "acme", "run": "r1", "task": "task-r1", "session": "s-r1"}
    data = {"attempt": 4, "by": "agent", "failed": "refused", "error": "it would not", "gave_up": True}
    put(db, *events, door.admit({**names, "id": "gave-up", "type": "settlement.attempted", "data": data}))
    settle_all(db, server)
    assert server.requests == []
    (degraded,) = data_of(stored(db, "settlement.degraded"))
    assert (degraded["degraded"], degraded["detail"], degraded["attempts"]) == ("refused", "it would not", 1)
    assert degraded["evidence"]
