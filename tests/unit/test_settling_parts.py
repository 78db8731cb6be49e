"""The pure parts of the settler: a conversation from events, its fit into a window, routes, the gate of an endpoint."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from events import door
from events.errors import SetupError, Transient
from events.event import Position, Recorded
from events.registry import decode_payload
from services.models.budget import Budget
from services.models.failure import retry_after
from services.models.gate import FAILURES, LONGEST_PAUSE_S, Gate
from services.models.routes import Routes, read_routes
from services.reactors.settling.conversation import NO_RESULT, Turn, conversation
from services.reactors.settling.window import fit, head_and_tail, tokens_of


def said(*events: tuple[str, dict[str, Any]], prompt: Any = None) -> list[dict[str, Any]]:
    """The messages of a run with these events."""
    recorded = []
    for n, (kind, data) in enumerate(events):
        event = door.admit({"id": f"e{n}", "type": kind, "run": "r", "task": "t", "data": data})
        recorded.append(Recorded(0, Position(1, n), event, decode_payload(event)))
    return [turn.message for group in conversation(recorded, prompt) for turn in group]


def message(role: str, content: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return "message.added", {"role": role, "content": content, **more}


def called(call: str, name: str = "find", **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tool.called", {"call_id": call, "name": name, "arguments": arguments}


def returned(call: str, result: Any) -> tuple[str, dict[str, Any]]:
    return "tool.returned", {"call_id": call, "result": result}


def roles(messages: list[dict[str, Any]]) -> str:
    """The roles, an assistant's with how many calls it made."""
    return " ".join(f"{m['role']}{len(m['tool_calls']) if 'tool_calls' in m else ''}" for m in messages)


def test_calls_side_by_side_are_one_turn_and_calls_after_results_another() -> None:
    messages = said(
        message("user", "go"), message("assistant", "two at once"), called("a"), called("b"), returned("b", "B"),
        returned("a", "A"), called("c"), returned("c", "C"), message("assistant", "done"),
    )  # fmt: skip
    assert roles(messages) == "user assistant2 tool tool assistant1 tool assistant"
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["A", "B", "C"]


def test_what_was_said_of_a_result_counts_before_what_the_tool_returned() -> None:
    messages = said(
        called("a"), returned("a", {"raw": 1}), message("tool", "seen", call_id="a"),
        returned("late", "it came before its call"), called("late"), called("open"),
    )  # fmt: skip
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["seen", "it came before its call", NO_RESULT]


def test_a_prompt_is_told_once_and_content_parts_and_names_stay() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    messages = said(
        message("system", "Be brief."), message("user", parts, name="ada"), message("user", {"odd": 1}, name="no name"),
        message("system", "Be brief."), prompt="Be brief.",
    )  # fmt: skip
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts, "name": "ada"},
        {"role": "user", "content": '{"odd":1}'},
        {"role": "system", "content": "Be brief."},
    ]


def groups_of(*turns: tuple[str, str]) -> list[list[Turn]]:
    return [[Turn({"role": role, "content": text}, f"e{n}")] for n, (role, text) in enumerate(turns)]


def test_a_conversation_that_fits_is_left_as_it_is() -> None:
    groups = groups_of(("system", "s"), ("user", "u" * 300))
    assert fit(groups, 200) == [turn.message for group in groups for turn in group]


def test_outputs_are_cut_before_words_and_the_oldest_turns_go_last() -> None:
    """Never silently: each cut says how much, and where the whole is; the prompt, the request and the end stay."""
    turns = [("system", "s" * 900), ("user", "first"), *[("tool", f"{n}" + "o" * 9_000) for n in range(20)]]
    turns += [("assistant", "a" * 3_000)] * 5 + [("user", "last")]
    groups = groups_of(*turns)
    room = 12_000
    while room > 700:
        messages = fit(groups, room)
        assert messages is not None
        assert sum(map(tokens_of, messages)) <= room
        assert messages[0]["content"] == "s" * 900 and messages[1]["content"] == "first"
        assert messages[-1]["content"] == "last"
        kept = [m["content"] for m in messages if m["role"] == "assistant"]
        outputs = [m["content"] for m in messages if m["role"] == "tool"]
        if any(len(text) < 3_000 for text in kept):
            assert all("are left out here; the whole is in event e" in text for text in outputs)
        if len(outputs) + len(kept) < 25:
            assert f"[{25 - len(outputs) - len(kept)} turns are left out here" in messages[2]["content"]
        room = int(room * 0.8)
    assert fit(groups, 300) is None


def test_a_cut_is_between_visible_characters() -> None:
    """C30."""
    family, rare = "👩‍👩‍👧‍👦", "𠀋"
    cut = head_and_tail((family + rare) * 300, 200, "e1")
    head, told, tail = cut.split("\n")
    assert head.rstrip("…").replace(family, "").replace(rare, "") == ""
    assert tail.replace(family, "").replace(rare, "") == ""
    assert "the whole is in event e1" in told


def test_routes_are_read_from_yaml_or_json_and_say_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("models: [{model: m, base_url: 'http://h/v1', price_in: 2}]\ntokens_a_day: {'*': 5, acme: 7}\n")
    routes = read_routes(str(file), "http://other/v1")
    assert [(m, r.base_url) for m in ("m", "n") if (r := routes.find(m))] == [
        ("m", "http://h/v1"),
        ("n", "http://other/v1"),
    ]
    assert (routes.find(""), routes.budget("acme"), routes.budget("x")) == (None, 7, 5)
    assert read_routes().find("m") is None
    for text, told in (
        ('{"models": [{"model": "m"}]}', "base_url"),
        ('{"models": [{"model": "m", "base_url": "ftp://h"}]}', "must be like http"),
        ('{"models": [{"model": "m", "base_url": "http://h", "key": "sk-1"}]}', "unknown field `key`"),
        ('{"models": [{"model": "m", "base_url": "http://h"}, {"model": "m", "base_url": "http://i"}]}', "two routes"),
        ("{", "truncated"),
    ):
        (tmp_path / "models.json").write_text(text)
        with pytest.raises(SetupError, match=told):
            read_routes(str(tmp_path / "models.json"))
    with pytest.raises(SetupError, match="cannot be read"):
        read_routes(str(tmp_path / "none.yaml"))


def test_a_gate_opens_for_one_and_its_pauses_grow_to_a_limit() -> None:
    gate, now, pauses = Gate(), 0.0, []
    for _ in range(FAILURES - 1):
        gate.failed(now)
    assert gate.wait_s(now) == 0 and not gate.is_open
    for _ in range(9):
        gate.begin()
        assert gate.wait_s(now) > 0 or not gate.is_open  # one tries, the others wait
        gate.failed(now)
        pauses.append(gate.wait_s(now))
        now += pauses[-1]
        assert gate.wait_s(now) == 0
    assert pauses[:4] == [1, 2, 4, 8] and pauses[-1] == LONGEST_PAUSE_S
    gate.begin()
    gate.abandoned()
    assert gate.wait_s(now) == 0
    gate.begin()
    gate.answered()
    assert gate.wait_s(now) == 0 and not gate.is_open


def test_a_budget_counts_what_is_recorded_of_others_too_and_begins_anew_each_day() -> None:
    days = [date(2026, 3, 1)]
    known = {"2026-03-01": 60}
    asked: list[tuple[str, str]] = []

    async def recorded(org: str, day: str) -> int:
        asked.append((org, day))
        if org == "hidden":
            raise Transient("the store does not answer")
        return known.get(day, 0)

    async def scenario() -> None:
        budget = Budget(Routes(tokens_a_day={"acme": 100, "hidden": 100}), recorded, lambda: days[-1])
        assert not await budget.is_spent("free") and asked == []
        assert not await budget.is_spent("acme")
        known["2026-03-01"] = 100
        assert await budget.is_spent("acme")
        days.append(date(2026, 3, 2))
        budget.spend("acme", 99)
        assert not await budget.is_spent("acme")
        budget.spend("acme", 1)
        assert await budget.is_spent("acme") and asked[-1] == ("acme", "2026-03-02")
        assert not await budget.is_spent("hidden")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", 0), ("1e9", 300), ("nan", None), ("", None), ("soon", None),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Fri, 31 Dec 2100 00:00:00 GMT", 300)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds
