"""All read models rebuilt in one pass over the archive, against the same ones one after another. On SQLite.

Folding costs the same both ways; what one pass saves is reading and decoding each event again, starting processes
again, and the time in which a core waits for the last partition. Run: ``python -m benchmarks.rebuild_together``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

from benchmarks.workload import agent_events, fill_archive
from events.database import Database, Stores
from projections.rebuilding.rebuild import drop_old, rebuild
from projections.rebuilding.rebuild_together import rebuild_together
from projections.registry import PROJECTIONS

PARTITIONS = 8
ROUNDS = 3


def one_by_one(stores: Stores, log: Database) -> None:
    """Rebuild each by itself."""
    for projection in PROJECTIONS.values():
        rebuild(projection, stores, log)


def together(stores: Stores, log: Database) -> None:
    """Rebuild all in one pass."""
    rebuild_together(list(PROJECTIONS.values()), stores, log)


def timed(work: Callable[[Stores, Database], None], stores: Stores, log: Database) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    work(stores, log)
    seconds = time.perf_counter() - began
    for name in PROJECTIONS:
        drop_old(name, stores, log, keep=0)
    return seconds


def main() -> None:
    """Measure in turns; print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        stores = Stores(f"sqlite:///{folder}")
        log = stores.log()
        fill_archive(log, agent_events(events), PARTITIONS)
        apart, shared = [], []
        for _ in range(ROUNDS):
            apart.append(timed(one_by_one, stores, log))
            shared.append(timed(together, stores, log))
        log.close()
    before, after = statistics.median(apart), statistics.median(shared)
    print(
        f"sqlite  {len(PROJECTIONS)} read models together {after:6.1f} s   one by one {before:6.1f} s   "
        f"ratio {before / after:.2f}   ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})"
    )


if __name__ == "__main__":
    main()
