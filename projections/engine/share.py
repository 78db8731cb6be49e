"""Folding partitions of one generation in processes of their own, so that a rebuild uses every core.

A process gets its job on standard input and ends when its partitions are folded. One that dies on an event is started
again: its successor counts that as every take-over does, and in the end parks the event, while the rebuild lives on.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from events.database import Stores
from events.errors import RefoldError
from events.event import Position
from projections.engine import checkpoints
from projections.engine.folder import PartitionFolder
from projections.engine.prefetch import Prefetching
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection

POLL_S = 0.02

STARTS = 2 + checkpoints.SUSPICIOUS + checkpoints.STRIKES
"""Processes that may die one after another at the same checkpoints before the rebuild gives up."""


class ProcessesDied(RefoldError):
    """The processes of a rebuild die without getting anywhere; see their messages above."""


@dataclass(frozen=True)
class Job:
    """Partitions to fold, each up to a position."""

    projection: Projection
    stores_url: str
    generation: str
    owner: str
    upto: Mapping[int, Position]
    batch: int
    cache_rows: int


def is_portable(projection: Projection) -> bool:
    """Whether a projection can be handed to another process: its functions stand in modules, by name."""
    try:
        pickle.dumps(projection)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return projection.apply.__module__ != "__main__"


def fold_shares(jobs: Sequence[Job], watch: Callable[[], None]) -> None:
    """Run each job in a process of its own until all are done; ``watch`` is called all the while, and may raise.

    Raises ProcessesDied when they die again and again without getting anywhere.
    """
    running: dict[int, subprocess.Popen[bytes]] = {}
    starts = dict.fromkeys(range(len(jobs)), 0)
    reached: dict[int, Mapping[int, Position]] = {}
    left = set(starts)
    try:
        while left:
            for index in sorted(left - running.keys()):
                here = _positions(jobs[index])
                starts[index] = 1 if here != reached.get(index) else starts[index] + 1
                reached[index] = here
                if starts[index] > STARTS:
                    raise ProcessesDied
                running[index] = _start(jobs[index])
            for index, process in list(running.items()):
                if process.poll() is not None:
                    del running[index]
                    if process.returncode == 0:
                        left.discard(index)
            watch()
            time.sleep(POLL_S)
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


def fold(job: Job) -> None:
    """Fold a job's partitions in this process."""
    stores = Stores(job.stores_url)
    log = stores.log()
    store = GenerationStore(job.projection, stores.generation(job.generation))
    source = Prefetching(ArchiveSource(log))
    try:
        for partition, upto in sorted(job.upto.items()):
            folder = PartitionFolder.take_over(
                store, source, partition, f"{job.owner}:{os.getpid()}", batch=job.batch, cache_rows=job.cache_rows
            )
            while folder.position < upto and folder.step(upto).read:
                pass
            folder.hand_over()
    finally:
        source.close()
        store.db.close()
        log.close()


def _positions(job: Job) -> Mapping[int, Position]:
    db = Stores(job.stores_url).generation(job.generation)
    try:
        vector = db.read_now(checkpoints.read_vector)
    finally:
        db.close()
    return {partition: vector[partition] for partition in job.upto}


def _start(job: Job) -> subprocess.Popen[bytes]:
    # not multiprocessing: that would import the caller's main module again
    process = subprocess.Popen(
        [sys.executable, "-m", "projections.engine.share"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)},
    )
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(pickle.dumps(job))
    return process


if __name__ == "__main__":
    # a fold makes no cycles, and its cached rows are millions of objects that a collection would visit for nothing
    gc.disable()
    fold(pickle.load(sys.stdin.buffer))
