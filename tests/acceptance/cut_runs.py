"""Recorded runs, cut in two: what was published before an agent died, and what its successor publishes.

Two forms of the rest. *Plain*: the events of the same run, only later. *Resumed*: as a new process goes on with the
task: attempt 2 begins under a run of its own, takes up the steps that were begun and not ended, tells the results of
calls that were in flight as late results of the first attempt, and publishes everything else under its own run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun, RunWriter
from tests.chaos.workload import DATASETS, FOLDERS, Run, made_up_runs

EVERY = 10
"""A run is cut after every so many events."""

RESULTS = ("tool.returned", "tool.failed")
STEP_ENDS = ("step.completed", "step.failed", "step.skipped")

SETS = ("made-up", "memorybank", *(folder for _, folder in FOLDERS))


def runs_of(name: str) -> list[Run]:
    """All runs of one set; none where it is not at hand."""
    if name == "made-up":
        return made_up_runs(20, random.Random(4))
    folder = DATASETS / name
    if not folder.is_dir():
        return []
    if name == "memorybank":
        return list(_dialogues(folder))
    format = FORMATS[next(format for format, place in FOLDERS if place == name)]
    found = [item for file in files(folder, format) for item in read_file(file, format)]
    return [item.events for item in found if isinstance(item, ImportedRun)]


def cuts(run: Run) -> range:
    """After how many events to cut: every tenth, the end left out."""
    return range(EVERY, len(run), EVERY)


def task_of(run: Run) -> str:
    """The task that a run is an attempt at."""
    return str(run[0].get("task") or run[0]["run"])


def resumed(run: Run, cut: int) -> Run:
    """The rest of a run as the next attempt at its task publishes it."""
    task, second = task_of(run), f"{run[0]['run']}~2"
    begun = next(event for event in run[:cut] if event["type"] == "run.started")
    waiting, begun_steps = in_flight(run[:cut]), open_steps(run[:cut])
    steps = {event["data"]["step"]: event for event in run[:cut] if event["type"] == "step.started"}
    again = [event for step, event in steps.items() if step in begun_steps]
    first = {**begun, "data": {**begun["data"], "attempt": 2}}
    again = [{**event, "id": f"{event['id']}~2"} for event in [first, *again]]
    rest: Run = []
    for event in [*again, *run[cut:]]:
        if event["type"] in RESULTS and event["data"]["call_id"] in waiting:
            late = {**event, "task": task, "data": {**event["data"], "late": True}}
            late.pop("seq", None)
            rest.append(late)
        else:
            rest.append({**event, "task": task, "run": second})
    for number, event in enumerate((event for event in rest if "seq" in event), 1):
        event["seq"] = number
    return rest


def _dialogues(folder: Path) -> Iterator[Run]:
    """Each day of each user's dialogues as a run."""
    for file in sorted(folder.rglob("memory_bank_*.json")):
        for user, kept in orjson.loads(file.read_bytes()).items():
            for day, turns in kept["history"].items():
                writer = RunWriter("memorybank", f"{file.stem}-{user}-{day}".replace(" ", "-"), "companion", user=user)
                writer.add("run.started", {"goal": f"talk with {user}"})
                for turn in turns:
                    writer.add("message.added", {"role": "user", "content": turn["query"]})
                    writer.add("message.added", {"role": "assistant", "content": turn["response"]})
                writer.add("run.terminated", {"reason": "end_turn"})
                yield writer.events


MAY_DIFFER = frozenset((
    "run", "run_id", "attempt", "next_attempt", "runs", "parent_run", "events", "attempts", "started", "duration_s",
    "late", "position", "epoch", "n", "first_epoch", "first_n", "result_epoch", "result_n",
))  # fmt: skip
"""In what a task of two attempts may differ from the same task of one.

Who did something in which attempt, and where in the log it stands (``run``, ``attempt``, ``position``, ``epoch``, ``n``
and the like); how many attempts and events there were (``runs``, ``events``, ``attempts``); when a step was begun that
was cut in two (``started``, ``duration_s``); and that results came after the attempt that had called (``late``).
"""


def progress(value: Any) -> Any:
    """What must be the same of a task's document, or of its rows, however many attempts it took."""
    if isinstance(value, dict):
        return {name: progress(item) for name, item in value.items() if name not in MAY_DIFFER}
    if isinstance(value, list):
        return [progress(item) for item in value]
    return value


def in_flight(head: Run) -> set[str]:
    """The calls that have no result yet."""
    called = {event["data"]["call_id"] for event in head if event["type"] == "tool.called"}
    return called - {event["data"]["call_id"] for event in head if event["type"] in RESULTS}


def open_steps(head: Run) -> set[str]:
    """The steps that were begun and have not ended since."""
    begun: set[str] = set()
    for event in head:
        if event["type"] == "step.started":
            begun.add(event["data"]["step"])
        elif event["type"] in STEP_ENDS:
            begun.discard(event["data"]["step"])
    return begun


def finished_steps(head: Run) -> set[str]:
    """The steps that were completed or skipped, and not begun again since."""
    last = {event["data"]["step"]: event["type"] for event in head if event["type"] in ("step.started", *STEP_ENDS)}
    return {step for step, type_ in last.items() if type_ in ("step.completed", "step.skipped")}
