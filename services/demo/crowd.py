"""Twenty thousand events of simulated runs, so that a refold takes long enough to be seen. The same ones every time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

RUNS = 500
EVENTS = 20_000
PER_RUN = EVENTS // RUNS
TOOLS = ("search", "read_file", "run_tests", "edit_file", "fetch_page")
_BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


def runs() -> Iterator[list[dict[str, Any]]]:
    """The events of each run, in order: PER_RUN of them."""
    for number in range(RUNS):
        yield list(_run(number))


def _run(number: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(number)
    run, begin = f"crowd-{number:04}", _BEGIN + timedelta(minutes=7 * number)
    drafts = list(_story(rng, number))
    for seq, (kind, data) in enumerate(drafts, start=1):
        yield {
            "specversion": "1.0",
            "id": f"{run}-{seq}",
            "type": kind,
            "source": "demo",
            "time": (begin + timedelta(seconds=seq)).isoformat(),
            "agent": f"worker-{number % 7}",
            "user": f"user-{number % 40}",
            "session": f"session-{number}",
            "task": run,
            "run": run,
            "seq": seq,
            "data": data,
        }


def _story(rng: random.Random, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    steps = [f"step-{n}" for n in range(6)]
    yield "run.started", {"goal": f"simulated task {number}", "attempt": 1}
    yield "plan.updated", {"steps": [{"id": step} for step in steps]}
    for place, step in enumerate(steps):
        yield "step.started", {"step": step}
        for n in range(2):
            yield from _call(rng, f"{place}.{n}", step)
        yield "step.completed", {"step": step, "summary": f"{step} is done"}
    yield "decision.made", {"chosen": rng.choice(TOOLS), "rationale": "it did best so far"}
    yield "run.terminated", {"reason": "end_turn" if rng.random() < 0.9 else "error_streak"}


def _call(rng: random.Random, call_id: str, step: str) -> Iterator[tuple[str, dict[str, Any]]]:
    tool, path = rng.choice(TOOLS), f"/src/module_{rng.randrange(90)}.py"
    yield "tool.called", {"call_id": call_id, "name": tool, "arguments": {"path": path}, "step": step}
    if rng.random() < 0.1:
        yield "tool.failed", {"call_id": call_id, "name": tool, "error": f"{path} is not there"}
    else:
        result = {"path": path, "lines": rng.randrange(900), "ticket": f"T-{rng.randrange(10**6)}"}
        yield "tool.returned", {"call_id": call_id, "name": tool, "result": result}
