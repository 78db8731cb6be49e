"""A rebuild of a million events: one process against two, and the memory of each over time. On SQLite.

Peer of two processes is one. Memory is resident memory, sampled all the while, of the builder and of each process that
it starts; *flat* is the highest of the last third over the highest of the middle third. Run:
``python -m benchmarks.rebuild_scale``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from benchmarks.workload import agent_events, fill_archive
from events.database import Database, Stores
from projections.engine.cores import cores
from projections.rebuilding.rebuild import drop_old, rebuild
from projections.task_state import TASK_STATE

PARTITIONS = 8
SAMPLE_S = 0.25
TARGET_RATIO = 1.6
TARGET_MB = 400
TARGET_FLAT = 1.1
WORTH_A_LOOK_S = 3.0
"""Processes that live shorter than this have no course of memory to speak of."""


@dataclass
class Memory:
    """Megabytes of each process over time, by process id."""

    samples: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def peaks(self) -> list[float]:
        """The most that each process had."""
        return [max(samples) for samples in self.samples.values()]

    def flatness(self) -> float:
        """The worst process: its highest in the last third over its highest in the middle third."""
        long = [samples for samples in self.samples.values() if len(samples) * SAMPLE_S > WORTH_A_LOOK_S]
        thirds = [(samples[n // 3 : 2 * n // 3], samples[2 * n // 3 :]) for samples in long if (n := len(samples))]
        return max((max(last) / max(middle) for middle, last in thirds), default=1.0)


@contextmanager
def sampled() -> Iterator[Memory]:
    """Watch this process and its children."""
    memory, ended = Memory(), threading.Event()
    this = psutil.Process()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            for process in (this, *this.children(recursive=True)):
                try:
                    memory.samples[process.pid].append(process.memory_info().rss / 1e6)
                except psutil.NoSuchProcess:
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def rebuilt(stores: Stores, log: Database, processes: int) -> tuple[float, Memory]:
    """Seconds of one rebuild, and its memory."""
    with sampled() as memory:
        began = time.perf_counter()
        rebuild(TASK_STATE, stores, log, processes=processes)
        seconds = time.perf_counter() - began
    drop_old(TASK_STATE.name, stores, log, keep=0)
    return seconds, memory


def main() -> None:
    """Measure in turns; print the ratio, and the memory of each process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        stores = Stores(f"sqlite:///{folder}")
        log = stores.log()
        fill_archive(log, agent_events(events), PARTITIONS)
        seconds = {}
        for processes in (1, 2):
            seconds[processes], memory = rebuilt(stores, log, processes)
            peaks = ", ".join(f"{peak:.0f}" for peak in sorted(memory.peaks(), reverse=True))
            print(
                f"{processes} process{'es' if processes > 1 else '  '}  rebuild {events / seconds[processes]:9,.0f} "
                f"events/s   peak of each {peaks} MB (target {TARGET_MB})   "
                f"last third / middle third {memory.flatness():.2f} (target {TARGET_FLAT})",
                flush=True,
            )
        log.close()
    allowed = f"   (this machine lets us use {cores()} core)" if cores() < 2 else ""
    print(
        f"2 processes / 1: {seconds[1] / seconds[2]:.2f}   target {TARGET_RATIO}{allowed}   "
        f"({cores()} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    main()
