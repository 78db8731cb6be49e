"""How fast a rebuild goes through the archive, on SQLite.

Rebuild: a new generation of the task state from the first event, checked and made active, in one process or several.
Read: the same archive read in the same batches, each event's data parsed by orjson, nothing else. Run:
``python -m benchmarks.rebuild``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

import orjson

from benchmarks.workload import agent_events, fill_archive
from events.archive import queries
from events.database import Database, Stores
from events.event import START
from projections.rebuilding.rebuild import BATCH, rebuild
from projections.task_state import TASK_STATE

PARTITIONS = 8
ROUNDS = 3
TARGET_EVENTS_PER_S = 60_000
TARGET_RATIO = 0.5


def read_only(log: Database) -> float:
    """Seconds to read the archive and parse every event's data."""
    began = time.perf_counter()
    for partition in range(PARTITIONS):
        after = START
        while batch := log.read_now(lambda conn, p=partition, a=after: queries.read_log(conn, p, a, BATCH)):  # type: ignore[misc]
            for archived in batch:
                orjson.loads(archived.event().data)
            after = batch[-1].position
    return time.perf_counter() - began


def rebuilt(stores: Stores, log: Database) -> float:
    """Seconds of one rebuild."""
    began = time.perf_counter()
    rebuild(TASK_STATE, stores, log)
    return time.perf_counter() - began


def main() -> None:
    """Measure in turns; print medians and the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        stores = Stores(f"sqlite:///{folder}")
        log = stores.log()
        fill_archive(log, agent_events(events), PARTITIONS)
        reads, rebuilds = [], []
        for _ in range(ROUNDS):
            reads.append(read_only(log))
            rebuilds.append(rebuilt(stores, log))
        log.close()
    read, ours = events / statistics.median(reads), events / statistics.median(rebuilds)
    target = min(TARGET_EVENTS_PER_S, TARGET_RATIO * read)
    print(
        f"sqlite  rebuild {ours:9,.0f} events/s   read + orjson {read:9,.0f} events/s   ratio {ours / read:.2f}   "
        f"target {target:,.0f} events/s   ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    main()
