"""How long until a publish can be read: one event at a time over HTTP, on ``refold up`` as a newcomer starts it.

Each event is published durably (the answer says that the archive has it), then its task is read with ``after=`` the
token of the answer, and the state must show the step. Measured at the client: publish, read, both. The floor beside
it is an answer of ``/healthz``, which does nothing. Run: ``python -m benchmarks.latency``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

TARGET_MEDIAN_MS, TARGET_P99_MS = 25.0, 100.0
TASKS = 20
WARM_UP = 50


@contextmanager
def instance(folder: str, **settings: str) -> Iterator[str]:
    """The URL of an embedded instance of our own on a data folder, with these environment variables set."""
    environ = {
        name: text for name, text in os.environ.items() if not name.startswith("REFOLD_") and name != "REDIS_URL"
    } | settings
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli.main", "up", "--data", folder, "--http", "0", "--log-level", "error"],
        env=environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        word, _, url = process.stdout.readline().strip().partition(" ")
        assert word == "ready", f"refold up said {word!r}"
        try:
            yield url
        finally:
            process.terminate()
            process.wait()


def client_of(url: str) -> httpx.Client:
    """A client that goes straight to it."""
    return httpx.Client(base_url=url, timeout=60, trust_env=False)


def publish(client: httpx.Client, event: dict[str, Any]) -> str:
    """Publish durably; the token."""
    outcome = client.post("/v1/events", json=event).raise_for_status().json()["outcomes"][0]
    assert outcome["status"] == "stored", outcome
    return str(outcome["token"])


def visible(client: httpx.Client, task: str, step: str, token: str) -> None:
    """Read the task's state behind the token; the step must be the current one."""
    state = client.get(f"/v1/tasks/{task}", params={"after": token}).raise_for_status().json()
    assert state["read"]["reached"], "the read model did not come as far in time"
    assert state["current_step"] == step, f"{state['current_step']!r} instead of {step!r}"


def measure(client: httpx.Client, numbers: range) -> list[tuple[float, float, float]]:
    """(publish, read, floor) of each event, in milliseconds; the runs take turns."""
    times = []
    for number in numbers:
        task, step = f"latency-{number % TASKS}", f"s{number}"
        event = {
            "id": f"latency-{number}", "type": "step.started", "run": task, "data": {"step": step, "title": "x" * 200},
        }  # fmt: skip
        started = time.perf_counter()
        token = publish(client, event)
        stored = time.perf_counter()
        visible(client, task, step, token)
        seen = time.perf_counter()
        client.get("/healthz").raise_for_status()
        times.append(((stored - started) * 1e3, (seen - stored) * 1e3, (time.perf_counter() - seen) * 1e3))
    return times


def report(name: str, times_ms: list[float]) -> tuple[float, float]:
    """Print and return median and 99th percentile."""
    median, p99 = statistics.median(times_ms), statistics.quantiles(times_ms, n=100)[98]
    print(f"latency, {name:28s} median {median:6.1f} ms, 99th {p99:6.1f} ms")
    return median, p99


def main() -> None:
    """Print the percentiles, and the ratio to the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500, help="events, one after another")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, instance(folder) as url, client_of(url) as client:
        measure(client, range(WARM_UP))
        times = measure(client, range(WARM_UP, WARM_UP + options.events))
    report("an empty answer (floor)", [floor for _, _, floor in times])
    report("durable publish", [stored for stored, _, _ in times])
    report("read behind the token", [read for _, read, _ in times])
    median, p99 = report("publish until visible", [stored + read for stored, read, _ in times])
    print(f"latency, share of the target:   median {median / TARGET_MEDIAN_MS:.2f}, 99th {p99 / TARGET_P99_MS:.2f}")


if __name__ == "__main__":
    main()
