"""How long partitions stand still when a worker dies, leaves or joins, while events flow into all of them.

``refold up`` and one ``refold worker`` share the partitions of task state. Events of every partition are published
without a pause, and the checkpoints in the store are looked at every few milliseconds: the pause of a partition is the
longest time between two of its advances. The worker joins and is stopped by SIGTERM (handed over within a second),
joins again and is killed by SIGKILL (taken over within two leases). Run: ``python -m benchmarks.takeover``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx

from benchmarks.latency import client_of
from events.database import Database, Stores
from events.event import Position
from events.keys import partition_of
from projections.engine import checkpoints, reports

PARTITIONS = 8
TARGET_PLANNED_S = 1.0
SETTLE_S = 60.0
LOOK_S = 0.004


@dataclass
class Watcher:
    """Sees checkpoints advance. ``moved`` holds the moments, by partition."""

    generation: Database
    moved: dict[int, list[float]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look again and again, until ``stop``."""
        seen: dict[int, Position] = {}
        while not self._stop.wait(LOOK_S):
            for partition, position in self.generation.read_now(checkpoints.read_vector).items():
                if seen.get(partition) != position:
                    seen[partition] = position
                    self.moved.setdefault(partition, []).append(time.monotonic())

    def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    def pause_s(self, since: float) -> float:
        """The longest time that any partition stood still, begun after ``since`` or shortly before."""
        longest = 0.0
        for moments in self.moved.values():
            late = [moment for moment in moments if moment > since - 1.0]
            longest = max([longest, *(b - a for a, b in pairwise(late) if b > since)])
        return longest


@contextmanager
def instance(folder: Path, environ: dict[str, str]) -> Iterator[str]:
    """The URL of a ``refold up`` on the folder."""
    command = [sys.executable, "-m", "services.cli.main", "up", "--data", str(folder), "--http", "0"]
    process = subprocess.Popen(
        [*command, "--log-level", "error"], env=environ, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        yield process.stdout.readline().split()[1]
        process.terminate()
        process.wait()


def worker(folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """One more process that folds."""
    command = [sys.executable, "-m", "services.cli.main", "worker", "--role", "projector", "--data", str(folder)]
    return subprocess.Popen([*command, "--log-level", "error"], env=environ)


def publish(url: str, stop: threading.Event) -> None:
    """One event into each partition, again and again."""
    tasks = [next(t for n in range(10_000) if partition_of("default", f"task/{(t := f't{n}')}", PARTITIONS) == p)
             for p in range(PARTITIONS)]  # fmt: skip
    number = 0
    with client_of(url) as client:
        while not stop.is_set():
            number += 1
            batch = [
                {"id": f"{task}-{number}", "type": "run.heartbeat", "run": task, "task": task, "data": {}}
                for task in tasks
            ]
            client.post("/v1/events", json=batch).raise_for_status()


def owners(log: Database) -> dict[int, str]:
    """Who holds which partition."""
    held = log.read_now(lambda conn: reports.holdings(conn, "task_state__g1"))
    return {partition: holding.owner for partition, holding in held.items()}


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Until it holds. Raises TimeoutError."""
    deadline = time.monotonic() + SETTLE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in vain waited for {what}")
        time.sleep(0.02)


@dataclass
class Scene:
    """The processes, and what is seen of them."""

    folder: Path
    environ: dict[str, str]
    log: Database
    watcher: Watcher

    def shared_by(self, workers: int) -> bool:
        """Whether so many processes hold a fair share each."""
        held = list(owners(self.log).values())
        counts = {held.count(owner) for owner in held}
        return len(held) == PARTITIONS and len(set(held)) == workers and counts == {PARTITIONS // workers}

    def pause_of(self, change: Callable[[], None], then: int) -> float:
        """The longest pause from a change on, until so many processes share the partitions and all get on."""
        began = time.monotonic()
        change()
        wait_for(f"{then} processes with fair shares", lambda: self.shared_by(then))
        settled = time.monotonic()
        wait_for("every partition to get on", lambda: all(m[-1] > settled for m in self.watcher.moved.values()))
        return self.watcher.pause_s(began)

    def round(self) -> dict[str, float]:
        """Join, stop, join again, die: the pause of each."""
        process = worker(self.folder, self.environ)
        joined = self.pause_of(lambda: None, 2)
        stopped = self.pause_of(process.terminate, 1)
        process.wait()
        process = worker(self.folder, self.environ)
        wait_for("two processes", lambda: self.shared_by(2))
        time.sleep(1.5)
        killed = self.pause_of(lambda: process.send_signal(signal.SIGKILL), 1)
        process.wait()
        return {"joins": joined, "is stopped": stopped, "is killed": killed}


def measure(rounds: int, lease_s: float) -> dict[str, float]:
    """The worst pause of each kind."""
    environ = {
        name: text for name, text in os.environ.items() if not name.startswith("REFOLD_") and name != "REDIS_URL"
    }
    environ |= {"REFOLD_LEASE_S": str(lease_s), "REFOLD_PARTITIONS": str(PARTITIONS)}
    with tempfile.TemporaryDirectory() as name, instance(Path(name), environ) as url:
        stores = Stores(f"sqlite:///{Path(name) / 'db'}")
        watcher, stop = Watcher(stores.generation("task_state__g1")), threading.Event()
        scene = Scene(Path(name), environ, stores.log(), watcher)
        threads = [threading.Thread(target=watcher.run), threading.Thread(target=publish, args=(url, stop))]
        for thread in threads:
            thread.start()
        try:
            wait_for("events in every partition", lambda: len(watcher.moved) == PARTITIONS)
            quiet = time.monotonic()
            time.sleep(2.0)
            worst = {"runs": watcher.pause_s(quiet)}
            for _ in range(rounds):
                for kind, seconds in scene.round().items():
                    worst[kind] = max(seconds, worst.get(kind, 0.0))
        finally:
            stop.set()
            threads[1].join()
            watcher.stop()
            threads[0].join()
            watcher.generation.close()
            scene.log.close()
    return worst


def main() -> None:
    """Print the worst pauses, and their ratio to the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often a worker joins, leaves, joins and dies")
    parser.add_argument("--lease", type=float, default=2.0, help="the lease, in seconds")
    options = parser.parse_args()
    targets = {"runs": TARGET_PLANNED_S, "joins": TARGET_PLANNED_S, "is stopped": TARGET_PLANNED_S}
    for kind, seconds in measure(options.rounds, options.lease).items():
        target = targets.get(kind, 2 * options.lease)
        print(
            f"takeover, a worker {kind:11s} longest pause of a partition {seconds:5.2f} s, "
            f"target {target:.1f} s: ratio {seconds / target:.2f}"
        )


if __name__ == "__main__":
    try:
        main()
    except httpx.HTTPError as error:
        sys.exit(f"the instance does not answer: {error}")
