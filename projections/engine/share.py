"""Folding partitions in a process of its own, so that a rebuild uses every core: what such a process does.

``python -m projections.engine.share`` gets its job on standard input, then the number of a partition in each line, and
says in a line of standard output what became of it. It ends when its input ends; when its parent does, after the batch
at hand.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import BinaryIO

from events.database import Stores
from events.errors import Fenced, RefoldError
from events.event import Position
from projections.engine.folder import PartitionFolder
from projections.engine.lockstep import Lockstep
from projections.engine.memo import Remembering
from projections.engine.pace import Pace
from projections.engine.prefetch import Prefetching
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection

logger = logging.getLogger(__name__)

DONE = b"done\n"
FAILED = b"failed\n"

RETRY_S = 0.5
"""Pause after a failure, which is tried again."""


@dataclass(frozen=True)
class Share:
    """One of the generations to fold: what ``PartitionFolder.take_over`` has to know of it."""

    projection: Projection
    generation: str
    owner: str


@dataclass(frozen=True)
class Job:
    """Generations to fold side by side, each partition up to a position. The limit is that of one process."""

    shares: tuple[Share, ...]
    stores_url: str
    upto: Mapping[int, Position]
    batch: int
    cache_rows: int
    max_events_per_s: float | None = None


def is_portable(projection: Projection) -> bool:
    """Whether a projection can be handed to another process: its functions stand in modules, by name."""
    try:
        pickle.dumps(projection)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return projection.apply.__module__ != "__main__"


class _Folding:
    """The stores of a job, opened once for all of its partitions."""

    def __init__(self, job: Job, opened: ExitStack) -> None:
        self._job = job
        self._stores: dict[str, GenerationStore] = {}
        stores = Stores(job.stores_url)
        for share in job.shares:
            store = GenerationStore(share.projection, stores.generation(share.generation))
            opened.callback(store.db.close)
            self._stores[share.generation] = store
        log = stores.log()
        opened.callback(log.close)
        prefetching = Prefetching(ArchiveSource(log))
        opened.callback(prefetching.close)
        self._source = Remembering(prefetching) if len(job.shares) > 1 else prefetching
        self._pace = Pace(job.max_events_per_s)
        self._parent = os.getppid()

    def fold(self, partition: int) -> None:
        """Fold one partition. A generation that is no longer ours is left out: its builder gave it up, or died."""
        folders: dict[str, PartitionFolder] = {}
        for share in self._job.shares:
            with suppress(Fenced):
                folders[share.generation] = self._take_over(share, partition)
        lockstep = Lockstep(folders)
        while os.getppid() == self._parent and (read := lockstep.step(self._job.upto[partition])):
            self._pace.hold(read, lambda: None)
        lockstep.hand_over()
        for error in lockstep.failed.values():
            if not isinstance(error, Fenced):
                raise error

    def _take_over(self, share: Share, partition: int) -> PartitionFolder:
        return PartitionFolder.take_over(
            self._stores[share.generation], self._source, partition, f"{share.owner}:{os.getpid()}",
            batch=self._pace.batch(self._job.batch), cache_rows=self._job.cache_rows,
        )  # fmt: skip


def work(orders: BinaryIO, answers: BinaryIO) -> None:
    """Fold what is asked for until there are no more orders."""
    job = pickle.load(orders)
    with ExitStack() as opened:
        folding = _Folding(job, opened)
        for line in orders:
            try:
                folding.fold(int(line))
                answer = DONE
            except RefoldError as error:
                logger.warning("partition %d: %s", int(line), error)
                time.sleep(RETRY_S)
                answer = FAILED
            answers.write(answer)
            answers.flush()


def main() -> None:
    """Work for the parent process."""
    # what a fold prints must not be taken for an answer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # a fold makes no cycles, and its cached rows are millions of objects that a collection would visit for nothing
    gc.disable()
    with suppress(BrokenPipeError), answers:
        work(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
