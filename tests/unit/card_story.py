"""Short histories of one task, for tests of memory cards."""

from __future__ import annotations

from typing import Any

from tests.unit.fold_runner import Folded, event

Raws = list[dict[str, Any]]
Part = tuple[str, dict[str, Any]]


def story(*parts: Part) -> Raws:
    """Events e0, e1 ... of run r1 of task t1, a second apart."""
    return [event(kind, n, task="t1", run="r1", **data) for n, (kind, data) in enumerate(parts)]


def call(call_id: str, name: str = "get", arguments: Any = None, **more: Any) -> Part:
    """A tool is called."""
    return ("tool.called", {"call_id": call_id, "name": name, "arguments": arguments, **more})


def result(call_id: str, value: Any) -> Part:
    """A call returned."""
    return ("tool.returned", {"call_id": call_id, "result": value})


def said(text: Any) -> Part:
    """The user says something."""
    return ("message.added", {"role": "user", "content": text})


def uses(folded: Folded) -> dict[str, list[list[str]]]:
    """Event id of each used card -> the values of each use."""
    origin = {card["card"]: card["event_id"] for card in folded.table("cards")}
    found: dict[str, list[list[str]]] = {}
    for row in sorted(folded.table("card_uses"), key=lambda row: row["n"]):
        found.setdefault(origin[row["card"]], []).append(row["values"])
    return found


def by_event(folded: Folded) -> dict[str, dict[str, Any]]:
    """Event id -> the card made of it."""
    return {card["event_id"]: card for card in folded.table("cards")}
