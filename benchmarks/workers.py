"""How much faster four workers fold than one, where each event takes 5 ms of sleep: waiting, as on a slow disk.

The events are spread evenly over 16 partitions, so that four workers of four threads each have one for every thread.
Every worker is a process of its own on one SQLite store; the clock runs from the archiving of the events until the last
one is folded. Run: ``python -m benchmarks.workers``.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import BigInteger, Column, MetaData

from benchmarks.workload import append_archive, fill_archive
from events.archive.queries import read_watermarks
from events.database import Database, Stores
from events.door import admit
from events.event import Event, Recorded
from events.keys import partition_of
from projections.engine import checkpoints, reports
from projections.engine.projector import Projector
from projections.projection import Change, Projection, Put, Rows, read_model_table

PARTITIONS = 16
SLEEP_S = 0.005
TARGET = 3.5
PATIENCE_S = 300.0


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Count, slowly."""
    time.sleep(SLEEP_S)
    old = rows.get("counts")
    return [Put("counts", {"events": (old["events"] if old else 0) + 1})]


SLOW = Projection(
    "slow", 1, (read_model_table(MetaData(), "counts", Column("events", BigInteger)),),
    frozenset({"run.heartbeat"}), apply,
)  # fmt: skip


def beats(count: int) -> Iterator[tuple[int, list[Event]]]:
    """``count`` events in all, as many for each partition, of ten tasks each."""
    for partition in range(PARTITIONS):
        names = (f"t{n}" for n in range(1_000_000))
        here = [name for _, name in zip(range(10), _of(partition, names), strict=False)]
        yield partition, [
            admit({"id": f"{partition}-{i}", "type": "run.heartbeat", "run": here[i % 10], "task": here[i % 10],
                   "time": "2026-03-01T10:00:00Z", "data": {}})
            for i in range(count // PARTITIONS)
        ]  # fmt: skip


def _of(partition: int, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if partition_of("default", f"task/{name}", PARTITIONS) == partition)


async def work(url: str) -> None:
    """Be a worker until SIGTERM."""
    stores = Stores(url)
    log = stores.log()
    projector = Projector([SLOW], stores, log, poll_s=0.05, lease_ttl_s=5.0)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await projector.start()
    await stopping.wait()
    await projector.stop()
    log.close()


@contextmanager
def workers(url: str, count: int) -> Iterator[None]:
    """So many worker processes."""
    command = [sys.executable, "-m", "benchmarks.workers", "--work-on", url]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Until it holds. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in vain waited for {what}")
        time.sleep(0.02)


def shared(log: Database, count: int) -> bool:
    """Whether so many workers hold a fair share each."""
    owners = [holding.owner for holding in log.read_now(lambda conn: reports.holdings(conn, "slow__g1")).values()]
    shares = sorted(owners.count(owner) for owner in set(owners))
    return shares == [PARTITIONS // count] * count


def measure(count: int, events: int) -> float:
    """Events a second with so many workers."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'db'}"
        stores = Stores(url)
        log = stores.log()
        fill_archive(log, iter(()), PARTITIONS)
        batches = list(beats(events))
        with workers(url, count):
            wait_for(f"{count} workers with fair shares", lambda: shared(log, count))
            generation = stores.generation("slow__g1")
            began = time.perf_counter()
            for partition, batch in batches:
                append_archive(log, partition, batch)
            marks = log.read_now(read_watermarks)
            wait_for("all to be folded", lambda: generation.read_now(checkpoints.read_vector) == marks)
            seconds = time.perf_counter() - began
            generation.close()
        log.close()
    return events // PARTITIONS * PARTITIONS / seconds


def main() -> None:
    """Print both speeds, and their ratio to the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=8_000, help="events to fold")
    parser.add_argument("--work-on", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work_on:
        asyncio.run(work(options.work_on))
        return
    one, four = measure(1, options.events), measure(4, options.events)
    print(f"workers, {SLEEP_S * 1000:.0f} ms of sleep an event: one {one:,.0f} events/s, four {four:,.0f} events/s")
    print(f"workers, four against one: ratio {four / one:.2f} (target {TARGET})")


if __name__ == "__main__":
    main()
