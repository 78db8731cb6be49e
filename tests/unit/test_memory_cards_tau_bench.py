"""Cards of real trajectories: needs the tau-bench airline runs (``REFOLD_DATASETS``, or ../shared/data)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from projections.cards.reading.facts import MAX_FACTS
from projections.cards.reading.values import MAX_VALUES
from projections.memory_cards import MEMORY_CARDS
from projections.task_state import TASK_STATE
from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun
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


Link = tuple[str, str, str]
"""(event of the card, what used it, value)."""


def links(raws: list[dict[str, Any]]) -> set[Link]:
    folded = fold(MEMORY_CARDS, raws, batch=1_000)
    event_of = {card["card"]: card["event_id"] for card in folded.table("cards")}
    uses = folded.table("card_uses")
    return {(event_of[use["card"]], use["used_by"], value) for use in uses for value in use["values"]}


def test_a_changed_source_value_takes_exactly_its_links_away(raws: list[dict[str, Any]]) -> None:
    """In each of 40 runs an id is changed in the one result that a call had it from: that link goes, and no other."""
    tried = 0
    for task in list(dict.fromkeys(raw["task"] for raw in raws))[::2]:
        mine = [raw for raw in raws if raw["task"] == task]
        before = links(mine)
        source = an_id_of_one_source(mine, before)
        if source is None:
            continue
        index, value = source
        text = mine[index]["data"]["result"]
        at = text.casefold().index(value)
        other = text[:at] + "ZQX0000XQZ" + text[at + len(value) :]
        changed = [*mine[:index], {**mine[index], "data": {**mine[index]["data"], "result": other}}, *mine[index + 1 :]]
        after = links(changed)
        gone = before - after
        assert gone == {link for link in before if link[0] == mine[index]["id"] and link[2] == value}, (task, value)
        assert {link[2] for link in after - before} <= {value}  # what another card says too is that card's now
        tried += 1
        if tried == 40:
            break
    assert tried == 40


def an_id_of_one_source(raws: list[dict[str, Any]], found: set[Link]) -> tuple[int, str] | None:
    """A used id that stands once in a result: the place of that result, and the id."""
    place = {raw["id"]: n for n, raw in enumerate(raws) if raw["type"] == "tool.returned"}
    for card, _, value in sorted(found):
        if card in place and any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and value.isalnum():
            text = raws[place[card]]["data"]["result"]
            if text.casefold().count(value) == 1 and text.startswith("{"):
                return place[card], value
    return None


DATASETS = {"chat": "tau-bench-airline/gpt-4o-airline.json", "relay": "relay/completed", "swe-agent": "swe-agent"}


@pytest.mark.parametrize("format", sorted(DATASETS))
def test_real_runs_of_any_format_fold_alike_in_any_batches(format: str) -> None:
    """Work is bounded, nothing is dropped, every card has its way back, whatever tools print."""
    path = DATA.parent / DATASETS[format]
    if not path.exists():
        pytest.skip(f"no data set at {path}")
    found: list[dict[str, Any]] = []
    for file in files(path, FORMATS[format]):
        runs = [one for one in read_file(file, FORMATS[format]) if isinstance(one, ImportedRun)]
        found += [raw for one in runs[:30] for raw in one.events]
    whole = fold(MEMORY_CARDS, found, batch=len(found))
    assert whole.dump() == fold(MEMORY_CARDS, found, batch=13).dump()
    ids = {raw["id"] for raw in found}
    cards = whole.table("cards")
    assert len(cards) > 20
    assert {card["event_id"] for card in cards} <= ids
    assert all(len(card["facts"]) <= MAX_FACTS and len(card["values"]) <= MAX_VALUES for card in cards)
