"""One owned partition, folded for as long as it is owned: waits, retries, hands over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

from events.errors import Fenced, RefoldError, Transient
from events.event import Position
from projections.engine.folder import PartitionFolder, Step
from projections.engine.gate import Gate

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 5.0


class PartitionWorker:
    """Folds one partition until it is stopped. ``claim`` takes the partition over; it is called again after fencing.

    ``paused`` tells why it waits, "" while it works. Waiting for events ends with ``wake``, at the latest after
    ``poll_s``.
    """

    def __init__(
        self, name: str, claim: Callable[[], PartitionFolder], gate: Gate, executor: Executor, poll_s: float
    ) -> None:
        self.name = name
        self.paused = ""
        self.position: Position | None = None
        self._claim = claim
        self._gate = gate
        self._executor = executor
        self._poll_s = poll_s
        self._woken = asyncio.Event()
        self._stopping = False
        self._retry_s = FIRST_RETRY_S
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
                self._folder = None
                await self._back_off("")
            except RefoldError as error:
                await self._pause(error)
            else:
                self._retry_s = FIRST_RETRY_S
                self.paused = ""
                self.position = step.position
                if not step.read:
                    await self._wait(self._poll_s)
        if self._folder is not None:
            with suppress(Transient):
                await self._thread(self._folder.hand_over)

    async def _step(self) -> Step:
        if self._folder is None:
            self._folder = await self._thread(self._claim)
        async with self._gate.alone() if self._folder.single else self._gate.shared():
            return await self._thread(self._folder.step)

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
