"""The workbench: what a run has at hand, overwritten as it goes, cleared when the task's work ends.

It is apart from what lasts (plan, notes, decisions) and from the session's state. An end that leaves the task
interrupted clears nothing: whoever resumes goes on at the same workbench. What comes late adds nothing here.
"""

from __future__ import annotations

from typing import Any

from events.types.world import WorkbenchUpdated
from projections.bounds import canonical, clip, clip_json, digest
from projections.task import retries
from projections.task.retries import ITEMS
from projections.task.scene import Mutable, Scene

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
    """A call of which both ends are known has failed: it is to be tried again, unless a newer try came through."""
    if scene.late or call["late"]:
        return
    effect, asked = _effect(call), [call["epoch"], call["n"]]
    stored = scene.draft.peek("workbench")
    if stored is not None and not retries.is_newer(stored, effect, asked):
        return
    row = scene.draft.edit("workbench")
    told = {
        "call_id": call["full"] or call["call_id"],
        "run": call["run_id"],
        "name": call["name"],
        "arguments": clip_json(call["arguments"], ITEM_LIMIT, at_most=len(canonical(call["arguments"]))),
        "step": call["step"],
        "error": clip(call["error"], ITEM_LIMIT),
    }
    retries.add(row, effect, asked, told)
    _stamp(scene, row)


def succeeded(scene: Scene, call: Mutable) -> None:
    """The same call came through: it needs no other try, unless a newer one has failed.

    It is remembered only while other calls wait for results: no other failure that comes later can be of an older try.
    """
    effect, asked = _effect(call), [call["epoch"], call["n"]]
    stored = scene.draft.peek("workbench")
    if scene.task["calls_in_flight"] and not (scene.late or call["late"]):
        retries.remember(scene.draft.edit("workbench"), effect, asked)
    elif stored is not None and stored["came_through"] and not scene.task["calls_in_flight"]:
        scene.draft.edit("workbench")["came_through"] = None
    left = retries.left_after(stored, effect, asked) if stored is not None and stored["to_retry"] else None
    if stored is not None and left != stored["to_retry"]:
        row = scene.draft.edit("workbench")
        row["to_retry"] = left
        _stamp(scene, row)


def clear(scene: Scene) -> None:
    """The work is over."""
    if scene.draft.peek("workbench") is not None:
        scene.draft.drop("workbench")


def _effect(call: Mutable) -> str:
    """What two tries of one call have in common: its idempotency key, else step, name and arguments."""
    return call["idempotency_key"] or digest(canonical([call["step"], call["name"], call["arguments"]]))


def _stamp(scene: Scene, row: Mutable) -> None:
    row.update(run=scene.event.run, time=scene.event.time, epoch=scene.epoch, n=scene.n)
