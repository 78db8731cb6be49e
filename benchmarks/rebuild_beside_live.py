"""What a rebuild costs those who publish and read meanwhile, on ``refold up`` as a newcomer starts it.

Publish until visible in the task state, one event at a time over HTTP as in ``benchmarks.latency``: alone; while
another projection is rebuilt over and over; while the task state itself is; and so with a rate limit. Then publishers
that send batches as fast as they are answered, with and without a rebuild, and how far the other projections fall
behind. Each is a ratio to what was measured without a rebuild in the same run. Run:
``python -m benchmarks.rebuild_beside_live``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from benchmarks.latency import client_of, instance, measure
from benchmarks.workload import agent_events, append_archive
from events.archive.store import partition_count
from events.database import Stores
from events.event import Event
from events.keys import partition_of

TARGET = 2.0
RATE = 20_000
PUBLISHERS, BATCH = 4, 200
FLOOD_S = 5.0
WARM_UP = 50


def fill(folder: str, count: int) -> None:
    """Archive events in a data folder that an instance has made, as if they had been published before."""
    with instance(folder):
        pass
    log = Stores(f"sqlite:///{folder}/db").log()
    partitions = log.read_now(partition_count)
    assert partitions is not None
    waiting: dict[int, list[Event]] = {partition: [] for partition in range(partitions)}
    for event in agent_events(count):
        waiting[partition_of(event.org, event.key, partitions)].append(event)
    for partition, events in waiting.items():
        append_archive(log, partition, events)
    log.close()


def lags(client: httpx.Client) -> dict[str, int]:
    """How many events each projection is behind."""
    items = client.get("/v1/projections").raise_for_status().json()["items"]
    return {item["name"]: item["lag_events"] for item in items}


@contextmanager
def rebuilding(url: str, name: str, rate: int | None) -> Iterator[list[float]]:
    """Rebuild a projection again and again; yields how long each took."""
    ended, took = threading.Event(), list[float]()

    def rebuild() -> None:
        with client_of(url) as client:
            while not ended.is_set():
                began = time.perf_counter()
                client.post(f"/v1/projections/{name}/rebuild", params={"rate": rate} if rate else {}).raise_for_status()
                while _state(client, name) == "running" and not ended.is_set():
                    time.sleep(0.2)
                took.append(time.perf_counter() - began)
            client.delete(f"/v1/projections/{name}/rebuild")
            while _state(client, name) == "running":
                time.sleep(0.2)

    thread = threading.Thread(target=rebuild)
    thread.start()
    time.sleep(1.0)  # its processes have started
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def _state(client: httpx.Client, name: str) -> str:
    return str(client.get(f"/v1/projections/{name}/rebuild").raise_for_status().json()["state"])


def latency(client: httpx.Client, numbers: range) -> tuple[float, float]:
    """Median and 99th percentile of publish until visible, in milliseconds."""
    times = [stored + read for stored, read, _ in measure(client, numbers)]
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def flood(url: str, label: str) -> tuple[float, int]:
    """PUBLISHERS at once for FLOOD_S; events a second in all, and the most that a projection was behind meanwhile."""
    began = time.perf_counter()
    worst = 0
    with ThreadPoolExecutor(PUBLISHERS) as publishers, client_of(url) as client:
        sending = [publishers.submit(_send, url, f"{label}-{number}", began + FLOOD_S) for number in range(PUBLISHERS)]
        while not all(each.done() for each in sending):
            worst = max(worst, *lags(client).values())
            time.sleep(0.25)
        took = time.perf_counter() - began
    return sum(each.result() for each in sending) / took, worst


def _send(url: str, label: str, until: float) -> int:
    sent = 0
    with client_of(url) as client:
        while time.perf_counter() < until:
            batch = [_step(label, sent + number) for number in range(BATCH)]
            client.post("/v1/events", json=batch).raise_for_status()
            sent += BATCH
    return sent


def _step(label: str, number: int) -> dict[str, Any]:
    task = f"flood-{label}-{number % 50}"
    data = {"step": f"s{number}", "title": "x" * 200}
    return {"id": f"{task}-{number}", "type": "step.started", "run": task, "data": data}


def report(what: str, found: tuple[float, float], alone: tuple[float, float]) -> None:
    """One line: milliseconds, and ratios to those without a rebuild."""
    ratios = " ".join(f"{mine / theirs:5.2f}" for mine, theirs in zip(found, alone, strict=True))
    print(f"{what:54s} median {found[0]:6.1f} ms, 99th {found[1]:6.1f} ms   ratios {ratios} (target {TARGET:g})")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=60_000, help="events that are there to be rebuilt from")
    parser.add_argument("--samples", type=int, default=300, help="events published one by one, each time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        fill(folder, options.events)
        with instance(folder) as url, client_of(url) as client:
            while any(lags(client).values()):
                time.sleep(0.2)
            run(client, url, options.samples)


def run(client: httpx.Client, url: str, samples: int) -> None:
    """Measure on an instance that has nothing to do."""
    start = WARM_UP
    latency(client, range(start))
    alone = latency(client, range(start, start + samples))
    report("publish until visible, no rebuild", alone, alone)
    cases = (("memory_cards", None), ("task_state", None), ("task_state", RATE))
    for index, (name, rate) in enumerate(cases, start=1):
        with rebuilding(url, name, rate) as took:
            begin = start + index * samples
            found = latency(client, range(begin, begin + samples))
        limit = f", {rate:,} events/s" if rate else ""
        report(f"  rebuilding {name}{limit} ({len(took)} rebuilds)", found, alone)
        assert took, "no rebuild ran"
    quiet, worst = flood(url, "quiet")
    print(
        f"{PUBLISHERS} publishers in batches of {BATCH}, no rebuild    {quiet:8,.0f} events/s, at most {worst:,} behind"
    )
    with rebuilding(url, "task_state", None):
        busy, worst = flood(url, "busy")
    print(f"  rebuilding task_state                     {busy:8,.0f} events/s, at most {worst:,} behind, "
          f"ratio {busy / quiet:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
