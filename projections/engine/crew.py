"""The processes that fold partitions for a rebuild, as seen by the process that started them.

Each is given one partition at a time, the longest first, and another one when it is done, so that all are busy till the
end. One that dies on an event is replaced: its successor counts that as every take-over does, and in the end parks the
event, while the rebuild lives on.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from events.database import Stores
from events.errors import RefoldError
from events.event import Position
from projections.engine import checkpoints
from projections.engine.share import DONE, Job

POLL_S = 0.02

TRIES = 2 + checkpoints.SUSPICIOUS + checkpoints.STRIKES
"""Times that a partition may fail at the same checkpoints before nobody tries again."""

END_S = 5.0
"""How long a process that is to end may take to do so by itself."""

_Place = tuple[Position, ...]


class ProcessesDied(RefoldError):
    """The processes of a rebuild die without getting anywhere; see their messages above."""


def fold_in_processes(job: Job, partitions: Sequence[int], processes: int, watch: Callable[[], bool]) -> None:
    """Fold these partitions of a job in ``processes`` processes.

    ``watch`` is called all the while; the processes end at once when it returns False or raises. A partition that
    fails again and again without anybody's death is left as it is: whoever goes on from there sees why. Raises
    ProcessesDied when processes die again and again without getting anywhere.
    """
    crew = _Crew(job, partitions, processes)
    try:
        while crew.work() and watch():
            pass
    finally:
        crew.end()


class _Worker:
    """A process, and the partition that it has in hand."""

    def __init__(self, job: Job) -> None:
        # not multiprocessing: that would import the caller's main module again
        self.process = subprocess.Popen(
            [sys.executable, "-m", "projections.engine.share"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.partition: int | None = None
        self._send(pickle.dumps(job))

    def take(self, partition: int) -> None:
        self.partition = partition
        self._send(b"%d\n" % partition)

    def end(self) -> None:
        """Let it go: one that has nothing in hand sees that there are no more orders, another one is stopped."""
        with suppress(BrokenPipeError):
            self.orders.close()
        if self.partition is not None:
            self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()

    def _send(self, message: bytes) -> None:
        # one that is dead already is noticed when its answers end
        with suppress(BrokenPipeError):
            self.orders.write(message)
            self.orders.flush()


class _Crew:
    def __init__(self, job: Job, partitions: Sequence[int], processes: int) -> None:
        self._job = job
        self._processes = processes
        self._waiting = deque(partitions)
        self._workers: list[_Worker] = []
        self._selector = DefaultSelector()
        self._tries = dict.fromkeys(partitions, 0)
        self._reached: dict[int, _Place] = {}

    def work(self) -> bool:
        """Hand out what waits, and hear what became of the rest for a moment; whether there is more to come."""
        for worker in self._workers:
            if worker.partition is None and self._waiting:
                worker.take(self._waiting.popleft())
        while self._waiting and len(self._workers) < self._processes:
            worker = _Worker(self._job)
            self._workers.append(worker)
            self._selector.register(worker.answers, EVENT_READ, worker)
            worker.take(self._waiting.popleft())
        for key, _ in self._selector.select(POLL_S):
            self._hear(key.data)
        return bool(self._waiting) or any(worker.partition is not None for worker in self._workers)

    def end(self) -> None:
        """End all processes."""
        self._selector.close()
        for worker in self._workers:
            worker.end()

    def _hear(self, worker: _Worker) -> None:
        answer = worker.answers.readline()
        partition, worker.partition = worker.partition, None
        if not answer:
            self._selector.unregister(worker.answers)
            self._workers.remove(worker)
            worker.end()
        if partition is not None and answer != DONE:
            self._failed(partition, died=not answer)

    def _failed(self, partition: int, *, died: bool) -> None:
        here = self._place(partition)
        self._tries[partition] = self._tries[partition] + 1 if here == self._reached.get(partition) else 1
        self._reached[partition] = here
        if self._tries[partition] < TRIES:
            self._waiting.appendleft(partition)
        elif died:
            raise ProcessesDied

    def _place(self, partition: int) -> _Place:
        stores = Stores(self._job.stores_url)
        return tuple(_vector(stores, share.generation)[partition] for share in self._job.shares)


def _vector(stores: Stores, generation: str) -> Mapping[int, Position]:
    db = stores.generation(generation)
    try:
        return db.read_now(checkpoints.read_vector)
    finally:
        db.close()
