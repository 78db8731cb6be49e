"""The workbench: what a run has at hand, overwritten as it goes, cleared when the task's work ends.

It is apart from what lasts (plan, notes, decisions) and from the session's state. An end that leaves the task
interrupted clears nothing: whoever resumes goes on at the same workbench. What comes late changes nothing here.
"""

from __future__ import annotations

from typing import Any

from events.types.world import WorkbenchUpdated
from projections.bounds import canonical, clip, clip_json, digest
from projections.task.scene import Mutable, Scene

ITEMS = 20
"""Items that a section keeps: the latest."""

ITEM_LIMIT = 1_000
"""Longest JSON kept of an item, in characters."""

SECTIONS = ("observations", "preconditions", "requirements", "to_retry")


def updated(scene: Scene, payload: WorkbenchUpdated) -> None:
    """The run says what it has at hand. An item that is added again moves to the end."""
    if scene.late:
        return
    row = scene.draft.edit("workbench")
    for section in SECTIONS:
        given: list[Any] | None = getattr(payload, section)
        if given is None:
            continue
        items = [clip_json(item, ITEM_LIMIT, at_most=len(scene.event.data)) for item in given]
        if payload.add:
            items = [item for item in row[section] or () if item not in items] + items
        row[section] = items[-ITEMS:] or None
    _stamp(scene, row)


def failed(scene: Scene, call: Mutable) -> None:
    """A call of which both ends are known has failed: it is to be tried again."""
    if scene.late or call["late"]:
        return
    effect = _effect(call)
    row = scene.draft.edit("workbench")
    before = [item for item in row["to_retry"] or () if _names(item) == effect]
    others = [item for item in row["to_retry"] or () if _names(item) != effect]
    item = {
        "effect": effect,
        "call_id": call["full"] or call["call_id"],
        "run": call["run_id"],
        "name": call["name"],
        "arguments": clip_json(call["arguments"], ITEM_LIMIT, at_most=len(canonical(call["arguments"]))),
        "step": call["step"],
        "error": clip(call["error"], ITEM_LIMIT),
        "failures": 1 + sum(item["failures"] for item in before),
    }
    row["to_retry"] = [*others, item][-ITEMS:]
    _stamp(scene, row)


def succeeded(scene: Scene, call: Mutable) -> None:
    """The same call came through: it needs no other try."""
    stored = scene.draft.peek("workbench")
    if stored is None or not stored["to_retry"]:
        return
    effect = _effect(call)
    left = [item for item in stored["to_retry"] if _names(item) != effect]
    if len(left) < len(stored["to_retry"]):
        row = scene.draft.edit("workbench")
        row["to_retry"] = left or None
        _stamp(scene, row)


def clear(scene: Scene) -> None:
    """The work is over."""
    if scene.draft.peek("workbench") is not None:
        scene.draft.drop("workbench")


def _effect(call: Mutable) -> str:
    """What two tries of one call have in common: its idempotency key, else step, name and arguments."""
    return call["idempotency_key"] or digest(canonical([call["step"], call["name"], call["arguments"]]))


def _names(item: Any) -> str:
    """The effect that an item stands for; "" for one that the agent wrote itself."""
    return str(item["effect"]) if isinstance(item, dict) and {"effect", "failures"} <= item.keys() else ""


def _stamp(scene: Scene, row: Mutable) -> None:
    row.update(run=scene.event.run, time=scene.event.time, epoch=scene.epoch, n=scene.n)
