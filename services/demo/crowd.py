"""Twenty thousand events of simulated runs of the last days: enough that a refold can be seen, and something learned.

The same runs every time, but for their dates. Each tool has a reliability of its own, which the agents do not know.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

RUNS = 500
EVENTS = 20_000
PER_RUN = EVENTS // RUNS
AGENTS = 7
FAILS = {"read_file": 0.01, "search": 0.06, "edit_file": 0.15, "run_tests": 0.35, "fetch_page": 0.7}
"""How often each tool fails."""
TOOLS = tuple(FAILS)
FATAL = "fetch_page"
"""A run whose last call is a failure of this tool fails; other failures are got over."""
GOALS = tuple(
    f"{verb} the {thing}"
    for verb in ("check", "mend", "tell of", "tidy", "measure")
    for thing in ("login page", "price list", "search box", "nightly report")
)
"""What runs are about: failures of one goal are one context, however many there are."""
_APART = timedelta(minutes=7)


def runs() -> Iterator[list[dict[str, Any]]]:
    """The events of each run, in order: PER_RUN of them."""
    begin = datetime.now(UTC) - RUNS * _APART
    for number in range(RUNS):
        yield list(_run(number, begin + number * _APART))


def agent_of(number: int) -> str:
    """Who does a run."""
    return f"worker-{number % AGENTS}"


def worked(agent: str) -> dict[str, tuple[int, int]]:
    """How often each tool worked and failed in an agent's hands: what there is to be learned."""
    ends = Counter[tuple[str, str]]()
    for number in range(RUNS):
        if agent_of(number) == agent:
            ends.update((data["name"], kind) for kind, data in _story(random.Random(number), number) if "name" in data)
    return {tool: (ends[tool, "tool.returned"], ends[tool, "tool.failed"]) for tool in TOOLS}


def _run(number: int, begin: datetime) -> Iterator[dict[str, Any]]:
    run, drafts = f"crowd-{number:04}", list(_story(random.Random(number), number))
    for seq, (kind, data) in enumerate(drafts, start=1):
        yield {
            "specversion": "1.0",
            "id": f"{run}-{seq}",
            "type": kind,
            "source": "demo",
            "time": (begin + timedelta(seconds=seq)).isoformat(),
            "agent": agent_of(number),
            "user": f"user-{number % 40}",
            "session": f"session-{number}",
            "task": run,
            "run": run,
            "seq": seq,
            "data": data,
        }


def _story(rng: random.Random, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    steps = [f"step-{n}" for n in range(6)]
    yield "run.started", {"goal": f"{rng.choice(GOALS)}, ticket {number}", "attempt": 1}
    yield "plan.updated", {"steps": [{"id": step} for step in steps]}
    end, data = "", dict[str, Any]()
    for place, step in enumerate(steps):
        yield "step.started", {"step": step}
        for n in range(2):
            called, (end, data) = _call(rng, f"{place}.{n}", step)
            yield called
            yield end, data
        yield "step.completed", {"step": step, "summary": f"{step} is done"}
    yield "decision.made", {"chosen": rng.choice(TOOLS), "rationale": "it did best so far"}
    yield "run.terminated", {"reason": "error_streak" if (end, data["name"]) == ("tool.failed", FATAL) else "end_turn"}


def _call(rng: random.Random, call_id: str, step: str) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
    tool, path = rng.choice(TOOLS), f"/src/module_{rng.randrange(90)}.py"
    called = "tool.called", {"call_id": call_id, "name": tool, "arguments": {"path": path}, "step": step}
    if rng.random() < FAILS[tool]:
        return called, ("tool.failed", {"call_id": call_id, "name": tool, "error": f"{path} is not there"})
    result = {"path": path, "lines": rng.randrange(900), "ticket": f"T-{rng.randrange(10**6)}"}
    return called, ("tool.returned", {"call_id": call_id, "name": tool, "result": result})
