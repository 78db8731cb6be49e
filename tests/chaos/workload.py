"""What the chaos scenarios publish: real runs where the datasets are at hand, else runs of our own."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from services.importers.registry import FORMATS, files, read_file
from services.importers.run import ImportedRun

DATASETS = Path(os.environ.get("REFOLD_DATASETS") or Path(__file__).resolve().parents[3] / "shared" / "data")
FOLDERS = (("chat", "tau-bench-airline"), ("relay", "relay"), ("swe-agent", "swe-agent"))

Run = list[dict[str, Any]]


def real_runs() -> list[Run]:
    """All runs of the datasets; fewer, or none, where they are not at hand."""
    runs: list[Run] = []
    for name, folder in FOLDERS:
        if (DATASETS / folder).is_dir():
            found = [
                item for file in files(DATASETS / folder, FORMATS[name]) for item in read_file(file, FORMATS[name])
            ]
            runs += [item.events for item in found if isinstance(item, ImportedRun)]
    return runs


def made_up_runs(count: int, rng: random.Random) -> list[Run]:
    """Runs with plans, steps, calls, decisions, notes and every kind of end, sizes and texts at random."""
    return [_run(number, rng) for number in range(count)]


def _run(number: int, rng: random.Random) -> Run:
    run = f"chaos-{number:04d}"
    user = f"user-{number % 7}"
    bodies: list[tuple[str, dict[str, Any]]] = [("run.started", {"goal": f"visit city {number}", "model": ""})]
    steps = [f"s{index}" for index in range(rng.randint(1, 5))]
    bodies.append(("plan.updated", {"steps": [{"id": step, "title": f"step {step}"} for step in steps]}))
    for step in steps:
        bodies.append(("step.started", {"step": step}))
        for call in range(rng.randint(0, 3)):
            name = rng.choice(["search_flights", "read_file", "pay"])
            ids = {"call_id": f"{step}-{call}", "name": name}
            bodies.append(("tool.called", ids | {"arguments": {"order": f"ORD-{rng.randint(1, 10**9)}"}}))
            if rng.random() < 0.8:
                bodies.append(
                    ("tool.returned", ids | {"result": {"price": rng.random(), "text": "x" * rng.randint(0, 2000)}})
                )
            else:
                bodies.append(("tool.failed", ids | {"error": "not found"}))
        bodies.append((rng.choice(["step.completed", "step.failed"]), {"step": step}))
        bodies.append(("decision.made", {"chosen": f"go on with {step}", "rationale": "it is next"}))
    bodies.append(("message.added", {"role": "user", "content": "I prefer metric units \U0001f9d1\u200d\U0001f680"}))
    reason = rng.choice(["end_turn", "interrupt", "panic_stop", "timeout", "error_streak"])
    bodies.append(("run.terminated", {"reason": reason}))
    return [
        {
            "id": f"{run}-{seq}", "type": type_, "source": "chaos", "time": f"2026-03-01T10:{number % 60:02d}:00Z",
            "agent": "tester", "user": user, "session": run, "task": f"task-{number}", "run": run, "seq": seq,
            "data": data,
        }
        for seq, (type_, data) in enumerate(bodies, 1)
    ]  # fmt: skip
