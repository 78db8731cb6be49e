"""``refold bench context``: what it counts, that it sees nothing of the future, that others can count it again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from projections.cards.reading.facts import facts_of
from projections.context.tokens import weigh
from services.bench import rivals
from services.bench.context import decisions, measure, other_ways, runs_of
from services.bench.decisions import History, Message, is_labelled
from tests.instance import refold

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or Path(__file__).resolve().parents[3] / "shared" / "data")


def call(n: int, name: str, arguments: Any, result: Any) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call{n}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call{n}", "name": name, "content": json.dumps(result)},
    ]


def conversation(number: int) -> list[dict[str, Any]]:
    """Orders looked up one by one, then one of them refunded: the fourth call needs values of the first and third."""
    orders = [f"W{number:03}{n:03}" for n in range(5)]
    told = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Refund what I paid last."}]
    told += call(1, "get_user", {"name": "Ida"}, {"user_id": f"ida_{number:04}", "orders": orders})
    for n in (2, 3):
        result = {
            "order_id": orders[n],
            "note": "left at the door",
            "payments": [{"payment_id": f"paypal_{number}{n}77"}],
        }
        told += call(n, "get_order", {"order_id": orders[n]}, result)
    refund = {"order_id": orders[3], "payment_id": f"paypal_{number}377", "reason": "late"}
    return [*told, *call(4, "refund", refund, {"ok": True, "receipt": f"R-{number}-secret"})]


def say(history: History, role: str, text: str) -> None:
    history.messages.append(Message(role, text, weigh(text)))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([{"task_id": n, "traj": conversation(n)} for n in range(6)]))
    return file


def test_a_decision_needs_what_stood_in_results_and_sees_nothing_later(recorded: Path) -> None:
    found = list(decisions(runs_of(recorded, "chat"), (0.5,), {"whole": rivals.whole}))
    assert [one.call for one in found] == ["call4"] * 6
    for number, one in enumerate(found):
        assert one.needed == [f"W{number:03}003", f"paypal_{number}377"]
        assert all(
            f"R-{number}-secret" not in context.text and "refund" not in context.text for context in one.contexts[:1]
        )
        assert one.contexts[0].tokens <= 0.5 * one.history.tokens


def test_what_is_learned_of_one_run_serves_the_next(recorded: Path) -> None:
    runs = runs_of(recorded, "chat")
    together, alone = measure(decisions(runs, (0.2,), {})), measure(decisions(runs, (0.2,), {}, alone=True))
    assert together[0]["labelled"] >= alone[0]["labelled"]
    assert together[0]["decisions"] == alone[0]["decisions"] == 6


def test_figures_can_be_counted_again_from_the_dump(recorded: Path, tmp_path: Path) -> None:
    dump = tmp_path / "contexts.jsonl"
    done = refold(
        "bench", "context", "--data", str(recorded), "--budget", "0.5", "--model", "none", "--dump", str(dump), "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    lines = [json.loads(line) for line in dump.read_text().splitlines()]
    assert len(lines) == told["decisions"] == 6 and told["runs"] == 6
    coverage = sum(sum(v in one["context"] for v in one["needed"]) / len(one["needed"]) for one in lines) / 6
    cost = sum(one["context_tokens"] / one["history_tokens"] for one in lines) / 6
    ours = told["ways"][0]
    assert ours["coverage"] == pytest.approx(coverage, abs=1e-3) and ours["cost"] == pytest.approx(cost, abs=0.02)
    assert {"whole history", "last 10 messages", "BM25, 10 passages"} <= {one["way"] for one in told["ways"]}


def test_data_of_another_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"not": "runs"}')
    done = refold("bench", "context", "--data", str(tmp_path), "--model", "none")
    assert done.returncode == 2 and b"no runs of the form chat" in done.stderr


def test_a_dump_that_cannot_be_written_is_an_error(recorded: Path, tmp_path: Path) -> None:
    dump = tmp_path / "nowhere" / "dump.jsonl"
    done = refold("bench", "context", "--data", str(recorded), "--model", "none", "--dump", str(dump))
    assert done.returncode == 2 and b"cannot be written: No such file" in done.stderr.replace(b"\n", b" ")


def test_a_label_is_close_before_its_value_or_the_sentence_is_whole() -> None:
    facts = [facts_of({"order_id": "W000003", "prices": {"economy": 152}, "note": "left at Mrs. Abel's door, No. 12b"})]
    assert is_labelled("W000003", "order_id: W000002, W000003", facts)
    assert not is_labelled("W000003", "order_id\nW000003", facts)
    assert not is_labelled("W000003", "order_id: " + "x" * 90 + "W000003", facts)
    assert is_labelled("economy", "prices.economy: 152", facts)
    assert is_labelled("LAX", "LAX: Los Angeles", [facts_of({"LAX": "Los Angeles"})])
    told = [facts_of("The order W000004 has left. It went to Berlin.")]
    assert is_labelled("W000004", "order W000004", told) and not is_labelled("W000004", "has: W000004", told)
    assert not is_labelled("W000004", "order W000004", told, by_words=False)
    assert is_labelled("W000004", "The order W000004 has left.", told, by_words=False)
    assert is_labelled("12b", "left at Mrs. Abel's door, No. 12b", facts) and not is_labelled("12b", "12b", facts)


def test_other_ways_keep_to_what_they_say() -> None:
    history = History()
    for n in range(30):
        say(history, "user" if n % 2 else "tool", f"message {n} about order W{n:04} " + "and so on " * 20)
    made = {way: make(history) for way, make in other_ways(0.25, None).items()}
    assert made["last 10 messages"].count("message") == 10 and "message 29" in made["last 10 messages"]
    half = made["head and tail at 0.25"]
    assert "message 0" in half and "message 15" not in half and weigh(half) <= 0.27 * history.tokens
    assert len(made["BM25, 10 passages"].split("\n")) == rivals.TOP_K
    assert rivals.bm25([["a", "b"], ["a"], ["c"]], ["b"])[0] > rivals.bm25([["a", "b"], ["a"], ["c"]], ["b"])[1] == 0.0


@pytest.mark.skipif(not (DATASETS / "tau-bench-airline").is_dir(), reason="the recorded runs are not on this machine")
def test_recorded_runs_reach_the_targets() -> None:
    runs = runs_of(DATASETS / "tau-bench-airline", "chat", 25)
    wide, tight = measure(decisions(runs, (0.25, 0.12), {}))
    assert wide["labelled"] >= 0.98 and wide["cost"] <= 0.25
    assert tight["labelled"] >= 0.90 and tight["cost"] <= 0.12
