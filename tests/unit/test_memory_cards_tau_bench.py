"""Cards of real trajectories: needs the tau-bench airline runs (``REFOLD_DATASETS``, or ../shared/data)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from projections.memory_cards import MEMORY_CARDS
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import event, fold

ROOT = Path(__file__).parent.parent.parent
DATA = Path(os.environ.get("REFOLD_DATASETS", ROOT.parent / "shared" / "data")) / "tau-bench-airline"
FILE = DATA / "gpt-4o-airline.json"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"no data set at {FILE}; set REFOLD_DATASETS")


def as_events(number: int, trajectory: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A throwaway conversion: call ids are used again in these runs, so each call gets its own."""
    raws: list[dict[str, Any]] = []
    names: dict[str, str] = {}

    def add(kind: str, **data: Any) -> None:
        raws.append(event(kind, len(raws), task=f"t{number}", run=f"r{number}", **data))

    add("run.started")
    for message in trajectory:
        if message["role"] == "tool":
            add("tool.returned", call_id=names[message["tool_call_id"]], result=message["content"])
            continue
        if message.get("content"):
            add("message.added", role=message["role"], content=message["content"])
        for call in message.get("tool_calls") or ():
            names[call["id"]] = f"c{len(raws)}"
            arguments = orjson.loads(call["function"]["arguments"])
            add("tool.called", call_id=names[call["id"]], name=call["function"]["name"], arguments=arguments)
    add("run.terminated", reason="end_turn")
    return raws


@pytest.fixture(scope="module")
def raws() -> list[dict[str, Any]]:
    runs = orjson.loads(FILE.read_bytes())
    return [raw for number, run in enumerate(runs) for raw in as_events(number, run["traj"])]


def test_every_call_of_every_run_returns(raws: list[dict[str, Any]]) -> None:
    tasks = fold(TASK_STATE, raws, batch=1_000).table("tasks")
    assert {task["status"] for task in tasks} == {"completed"}
    assert sum(task["calls"] for task in tasks) == sum(raw["type"] == "tool.called" for raw in raws)
    assert sum(task["calls_in_flight"] for task in tasks) == 0


def test_most_looked_up_things_are_used_and_their_cards_say_so(raws: list[dict[str, Any]]) -> None:
    folded = fold(MEMORY_CARDS, raws, batch=1_000)
    cards = folded.table("cards")
    looked_up = [card for card in cards if card["tool"] in ("get_user_details", "search_direct_flight")]
    used = [card for card in looked_up if card["uses"]]
    assert len(used) / len(looked_up) > 0.6
    assert min(card["value"] for card in used) > max(
        card["value"] for card in cards if set(card["reasons"]) == {"novelty"}
    )
    assert {card["status"] for card in cards} == {"active", "superseded"}


def test_batches_of_other_sizes_give_the_same_cards(raws: list[dict[str, Any]]) -> None:
    some = raws[:1_500]
    assert fold(MEMORY_CARDS, some, batch=7).dump() == fold(MEMORY_CARDS, some, batch=1_500).dump()
