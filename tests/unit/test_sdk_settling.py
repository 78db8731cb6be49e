"""A run that settles itself by its agent's model: what is asked, what is accepted, and what is said of the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from refold import AsyncRefold, Policy, Refold
from refold.core import STATE_NAMES
from refold.settling import read_answer

from events.types.settlement import SessionState
from services.reactors.settling.products import InvalidAnswer, Products
from services.reactors.settling.products import read_answer as backend_reads
from tests.model_server import GOOD
from tests.sdk_backend import FakeBackend

ANSWER = json.dumps(GOOD)
QUICK = Policy(backoff_s=0.02, backoff_max_s=0.05)


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    made = FakeBackend()
    yield made
    made.close()


class Model:
    """Answers in turn; an exception is raised. Keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)


def run_with(backend: FakeBackend, tmp_path: Path, ask: Any, error: BaseException | None = None) -> None:
    with Refold(backend.url, spool=tmp_path / "spool", policy=QUICK) as client, client.run("tea", settle=ask):
        if error is not None:
            raise error


def test_the_agents_model_is_asked_after_the_end_and_its_answer_is_the_settlement(
    backend: FakeBackend, tmp_path: Path
) -> None:
    model = Model(ANSWER)
    with pytest.raises(TimeoutError):
        run_with(backend, tmp_path, model, TimeoutError("too slow"))
    assert backend.types() == ["run.started", "run.terminated", "settlement.attempted", "settlement.recorded"]
    assert backend.data("run.started")[0]["settles"] == "agent"
    (recorded,) = backend.data("settlement.recorded")
    assert (recorded["by"], recorded["reason"], recorded["interrupted"], recorded["attempts"]) == (
        "agent", "timeout", True, 1,
    )  # fmt: skip
    assert recorded["session_state"]["goal"] == "fix it" and recorded["learnings"] == GOOD["learnings"]
    assert len(model.asked) == 1 and "The run has ended: timeout" in model.asked[0]


def test_what_was_wrong_is_quoted_more_strictly_each_time(backend: FakeBackend, tmp_path: Path) -> None:
    model = Model("no", '{"session_state": {"goal": 7}}', OSError("gone"), f"Here:\n```json\n{ANSWER}\n```")
    run_with(backend, tmp_path, model)
    assert [asked.count("could not be used") for asked in model.asked] == [0, 1, 1, 1]
    for asked, quoted in zip(model.asked[1:], ("it begins 'no'", "`goal` is not a text", "OSError: gone"), strict=True):
        assert quoted in asked
    assert [tried.get("failed") for tried in backend.data("settlement.attempted")] == [
        "invalid_output", "invalid_output", "unreachable", None,
    ]  # fmt: skip
    assert backend.data("settlement.recorded")[0]["attempts"] == 4


def test_after_four_tries_it_gives_up_and_says_so(backend: FakeBackend, tmp_path: Path) -> None:
    model = Model(*["no"] * 9)
    run_with(backend, tmp_path, model)
    assert len(model.asked) == 4
    assert [tried.get("gave_up") for tried in backend.data("settlement.attempted")] == [None, None, None, True]
    assert "settlement.recorded" not in backend.types()


@pytest.mark.parametrize("awaited", [True, False])
def test_in_the_async_client_the_function_may_be_a_coroutine_function(
    backend: FakeBackend, tmp_path: Path, awaited: bool
) -> None:
    model = Model("no", ANSWER)

    async def ask(prompt: str) -> str:
        await asyncio.sleep(0)
        return model(prompt)

    async def scenario() -> None:
        client = AsyncRefold(backend.url, spool=tmp_path / "spool", policy=QUICK)
        async with client, client.run("tea", settle=ask if awaited else model):
            pass

    asyncio.run(scenario())
    assert len(model.asked) == 2
    assert backend.types()[-1] == "settlement.recorded"


def test_a_run_that_has_settled_itself_and_one_that_is_to_end_at_once_ask_nobody(
    backend: FakeBackend, tmp_path: Path
) -> None:
    model = Model()
    with Refold(backend.url, spool=tmp_path / "spool", policy=QUICK) as client:
        with client.run("tea", settle=model) as run:
            run.settle({"goal": "tea"})
        with pytest.raises(KeyboardInterrupt), client.run("coffee", settle=model):
            raise KeyboardInterrupt
    assert model.asked == []
    assert backend.types().count("settlement.recorded") == 1


def test_a_name_that_no_session_state_has_is_told_at_once(backend: FakeBackend, tmp_path: Path) -> None:
    """What a model answers, given whole: it would leave an empty state."""
    assert {*SessionState.__struct_fields__} == STATE_NAMES
    with (
        Refold(backend.url, spool=tmp_path / "spool", policy=QUICK) as client,
        client.run("tea", settles="agent") as run,
    ):
        with pytest.raises(ValueError, match=r"no learnings, session_state; .*learnings="):
            run.settle({"session_state": {"goal": "tea"}, "learnings": []})
        run.settle({"goal": "tea"}, learnings=["warm the pot"])
    assert backend.data("settlement.recorded")[0]["session_state"] == {"goal": "tea"}


@pytest.mark.parametrize(
    "answer",
    [
        "", "prose", '{"session_state": {', "[1]", '{"memories": []}', '{"session_state": {}}',
        '{"session_state": {"goal": 1}}', '{"session_state": {"goal": "g", "key_decisions": [1]}}',
        '{"session_state": {"goal": "g", "completed_actions": ["a"]}}',
        *('{"session_state": {"goal": "g"}, "memories": [{"content": "c", "confidence": ' + bad + "}]}"
          for bad in ("85", "-1", '"0.9"', "null", "NaN", "true")),
        '{"session_state": {"goal": "g"}, "memories": [{"content": ""}]}',
        '{"session_state": {"goal": "g"}, "memories": [{"content": "c", "kind": "rumour"}]}',
        '{"session_state": {"goal": "g"}, "reflections": [2]}', '{"session_state": {"goal": "g"}, "learnings": [2]}',
    ],
)  # fmt: skip
def test_sdk_and_backend_refuse_the_same(answer: str) -> None:
    """C35 among them: each with its reason."""
    with pytest.raises(ValueError, match=r"\w"):
        read_answer(answer)
    with pytest.raises(InvalidAnswer):
        backend_reads(answer)


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER, f"Sure! {ANSWER} Anything else?", "```json\n" + ANSWER + "\n```",
        '{"session_state": {"goal": "修复", "plan_snapshot": [1, {"a": 2}]}, "learnings": ["x", {"content": "y"}]}',
    ],
)  # fmt: skip
def test_what_the_sdk_accepts_is_a_settlement_for_the_backend(answer: str) -> None:
    products = read_answer(answer)
    msgspec.convert(products, Products)
    assert products["session_state"]["goal"] == backend_reads(answer).session_state.goal
