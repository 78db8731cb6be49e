"""How long a process that resumes waits: ``GET /v1/tasks/{id}/resume`` over HTTP with 100,000 tasks stored.

The tasks are archived directly and folded by ``refold up`` as a newcomer starts it; when every read model has them,
random ones are asked for, one after another, at the client, beside the floor (``/healthz``, which does nothing) and
beside a long task (20 steps, 122 events). ``--database URL`` measures on an empty PostgreSQL database instead of
SQLite; ``--data DIR`` keeps what was made, and uses it the next time. Run: ``python -m benchmarks.resume``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.latency import client_of, instance
from benchmarks.workload import agent_events, fill_archive
from events.database import Stores
from events.door import admit
from events.event import Event
from migrations import migrate

TARGET_P50_MS = 5.0
PARTITIONS = 8
WARM_UP = 50
LONG = "task-000000"
_BEGINNING = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)


def interrupted_tasks(count: int) -> Iterator[Event]:
    """Tasks that were cut off in their second step, ten events each."""
    dice = random.Random(11)
    for number in range(count):
        common = {
            "task": f"cut-{number:06}",
            "run": f"run-{number:06}",
            "agent": "coder",
            "user": f"user-{number % 97}",
        }
        for place, (kind, data) in enumerate(_story(number, dice)):
            moment = _BEGINNING + timedelta(milliseconds=number * 10 + place)
            yield admit(
                {**common, "id": f"cut-{number:06}-{place}", "type": kind, "data": data, "time": moment.isoformat()}
            )


def _story(number: int, dice: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    order = {"order": dice.randrange(10**6), "note": "x" * 120}
    yield (
        "run.started",
        {"goal": f"handle order {number}", "attempt": 1, "model": "m1", "system_prompt": {"digest": "p1"}},
    )
    yield "plan.updated", {"steps": [{"id": f"s{step}", "title": f"part {step}"} for step in range(4)]}
    yield "step.started", {"step": "s0"}
    yield "tool.called", {"call_id": "c0", "name": "look", "step": "s0", "arguments": order}
    yield "tool.returned", {"call_id": "c0", "name": "look", "result": order}
    yield "step.completed", {"step": "s0", "summary": "looked", "result": order}
    yield "decision.made", {"chosen": "ship it", "rationale": "paid"}
    yield "note.written", {"key": "customer", "content": "prefers mornings", "category": "preference", "ttl_s": 86400}
    yield "step.started", {"step": "s1"}
    yield "tool.called", {
        "call_id": "c1", "name": "pay", "step": "s1", "side_effect": True, "idempotency_key": f"k{number}",
        "arguments": order,
    }  # fmt: skip


def store(url: str, tasks: int) -> int:
    """Archive the tasks, the long one last; how many events."""

    def events() -> Iterator[Event]:
        yield from interrupted_tasks(tasks)
        yield from agent_events(122, at_once=1)

    log = Stores(url).log()
    try:
        migrate(log)
        return fill_archive(log, events(), PARTITIONS)
    finally:
        log.close()


def caught_up(client: httpx.Client) -> None:
    """Return when every read model has folded the whole archive."""
    while True:
        token = client.get("/v1/log").raise_for_status().json()["token"]
        found = client.get("/v1/projections", params={"after": token}).json()["items"]
        if all(one["reached"] for one in found):
            return
        time.sleep(0.5)


def measure(client: httpx.Client, paths: list[str]) -> list[float]:
    """Milliseconds of each read, sorted."""
    times = []
    for path in paths:
        started = time.perf_counter()
        response = client.get(path)
        times.append((time.perf_counter() - started) * 1000)
        assert response.status_code == 200, response.text
    return sorted(times)


def percentile(times: list[float], share: float) -> float:
    """The value below which so large a share of the sorted times lies."""
    return times[min(len(times) - 1, int(len(times) * share))]


def main() -> None:
    """Print p50 and p99 of each, and whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=1_000)
    parser.add_argument("--database", default="")
    parser.add_argument("--data", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.data or scratch).resolve()
        if not (folder / "db").exists() or given.database:
            folder.mkdir(parents=True, exist_ok=True)
            began = time.perf_counter()
            count = store(given.database or f"sqlite:///{folder / 'db'}", given.tasks)
            print(
                f"archived {count:,} events of {given.tasks + 1:,} tasks in {time.perf_counter() - began:.1f} s",
                flush=True,
            )
        with instance(str(folder), **({"REFOLD_DATABASE_URL": given.database} if given.database else {})) as url:
            report(client_of(url), given.tasks, given.reads)


def report(client: httpx.Client, tasks: int, reads: int) -> None:
    """Measure on a running instance and print."""
    with client:
        began = time.perf_counter()
        caught_up(client)
        print(f"folded in {time.perf_counter() - began:.1f} s", flush=True)
        dice = random.Random(5)
        paths = [f"/v1/tasks/cut-{dice.randrange(tasks):06}/resume" for _ in range(reads)]
        measure(client, paths[:WARM_UP])
        for name, asked in (
            ("floor (/healthz)", ["/healthz"] * reads),
            ("resume, a random task", paths),
            ("resume, 122 events", [f"/v1/tasks/{LONG}/resume"] * (reads // 4)),
        ):
            times = measure(client, asked)
            p50, p99 = statistics.median(times), percentile(times, 0.99)
            print(f"{name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms", flush=True)
            if asked is paths:
                verdict = "met" if p50 <= TARGET_P50_MS else "missed"
        print(f"target p50 <= {TARGET_P50_MS:g} ms: {verdict}")


if __name__ == "__main__":
    main()
