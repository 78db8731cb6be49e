"""One owned partition, folded for as long as it is owned: waits, retries, hands over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Protocol, TypeVar

from events.errors import Fenced, RefoldError, Transient
from projections.engine.fold import DeadLetter
from projections.engine.folder import PartitionFolder, Step
from projections.engine.gate import Gate

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 5.0

STEP_S = 0.5
"""What a step should take at most, so that a partition can be handed over soon, however slow its fold is."""
LEAST_LIMIT = 100
"""Events that the first step takes, and slow ones all the same: commits cost time, too."""


class Observer(Protocol):
    """Who is told of each step, for metrics. Called on the event loop; must be quick."""

    def folded(self, projection: str, read: int, applied: int, seconds: float) -> None:
        """A step took ``read`` positions, of which ``applied`` events changed the read model."""
        ...

    def fenced(self, projection: str) -> None:
        """A commit failed, since the partition is somebody else's."""
        ...


class Unobserved:
    """Nobody is told."""

    def folded(self, projection: str, read: int, applied: int, seconds: float) -> None:
        """As ``Observer.folded``."""

    def fenced(self, projection: str) -> None:
        """As ``Observer.fenced``."""


class PartitionWorker:
    """Folds one partition until it is stopped. ``claim`` takes the partition over; it is called again after fencing.

    ``paused`` tells why it waits, "" while it works; ``folded`` how many positions it has taken. Waiting for events
    ends with ``wake``, at the latest after ``poll_s``.
    """

    def __init__(
        self,
        projection: str,
        name: str,
        claim: Callable[[], PartitionFolder],
        gate: Gate,
        executor: Executor,
        poll_s: float,
        observer: Observer,
    ) -> None:
        self.name = name
        self.paused = ""
        self.folded = 0
        self._projection = projection
        self._claim = claim
        self._gate = gate
        self._executor = executor
        self._poll_s = poll_s
        self._observer = observer
        self._woken = asyncio.Event()
        self._stopping = False
        self._retry_s = FIRST_RETRY_S
        self._limit = LEAST_LIMIT
        self._folder: PartitionFolder | None = None
        self.task = asyncio.create_task(self._run(), name=f"fold {name}")

    def wake(self) -> None:
        """There are events."""
        self._woken.set()

    async def stop(self) -> None:
        """Finish the step that runs, hand the partition over, end."""
        self._stopping = True
        self._woken.set()
        await self.task

    async def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                step = await self._step()
            except Fenced as error:
                logger.info("%s: %s", self.name, error)
                self._observer.fenced(self._projection)
                self._folder = None
                await self._back_off("")
            except RefoldError as error:
                await self._pause(error)
            else:
                self._retry_s = FIRST_RETRY_S
                self.paused = ""
                if step is not None and not step.read:
                    await self._wait(self._poll_s)
        if self._folder is not None:
            with suppress(Transient):
                # not behind the steps of other partitions: whoever takes over waits for this
                await asyncio.to_thread(self._folder.hand_over)

    async def _step(self) -> Step | None:
        """One step; None when it was not begun, since we stop."""
        if self._folder is None:
            self._folder = await self._thread(self._claim)
        folder = self._folder
        async with self._gate.alone() if folder.single else self._gate.shared():
            step, seconds = await self._thread(lambda: self._timed(folder))
        if step is not None and step.read:
            self.folded += step.read
            self._limit = next_limit(self._limit, step.read, seconds)
            self._observer.folded(self._projection, step.read, step.applied, seconds)
            self._tell_of(step.failed)
        return step

    def _tell_of(self, failed: Sequence[DeadLetter]) -> None:
        """A line a step in the log, so that dead letters are noticed where nobody looks at the status."""
        if failed:
            first = failed[0]
            logger.warning(
                "%s: %d new dead letter(s), %s:%d:%s (%s: %s) first; their keys wait: see `refold deadletters list`",
                self.name, len(failed), self._projection, first.partition, first.position, first.cause, first.error,
            )  # fmt: skip

    def _timed(self, folder: PartitionFolder) -> tuple[Step | None, float]:
        if self._stopping:
            return None, 0.0
        began = time.perf_counter()
        return folder.step(limit=self._limit), time.perf_counter() - began

    async def _pause(self, error: RefoldError) -> None:
        """Show that the partition waits, and why; nothing is parked for what passes."""
        logger.warning("%s is paused: %s", self.name, error)
        self.paused = str(error)
        if self._folder is not None:
            folder, reason = self._folder, self.paused
            with suppress(Transient):
                await self._thread(lambda: folder.show_paused(reason))
        await self._back_off(self.paused)

    async def _back_off(self, reason: str) -> None:
        self.paused = reason
        wait, self._retry_s = self._retry_s, min(self._retry_s * 2, LAST_RETRY_S)
        self._woken.clear()
        if not self._stopping:
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def next_limit(limit: int, read: int, seconds: float) -> int:
    """Events that the next step may take, after one that took ``read`` of at most ``limit`` in ``seconds``.

    At most twice as many as before; fewer where a step takes longer than ``STEP_S``.
    """
    if seconds > STEP_S:
        return max(LEAST_LIMIT, int(read * STEP_S / seconds))
    return min(2 * limit, 1 << 20) if read >= limit and seconds < STEP_S / 2 else limit
