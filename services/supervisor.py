"""Keeps services running: one that ends before it should is started again, visibly, after a growing pause."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from events.errors import RefoldError
from services.logs import brief

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
HEALTHY_AFTER_S = 30.0
"""A service that ran this long starts its next pauses from the shortest again."""

Run = Callable[[asyncio.Event], Awaitable[None]]
"""Serves until the event is set, then returns. Returning or raising earlier counts as a failure."""

_log = logging.getLogger("refold.supervisor")


class Ended(RefoldError):
    """A service ended though nobody asked it to."""


@dataclass
class ServiceStatus:
    """What is known of one service; ``error`` is the last failure, empty while there was none."""

    name: str
    state: Literal["starting", "running", "waiting", "stopped"] = "starting"
    restarts: int = 0
    error: str = ""


@dataclass
class Supervisor:
    """Runs services side by side until ``stop``. ``status`` is what ``/readyz`` and ``refold status`` show."""

    stop_timeout_s: float = 10.0
    status: dict[str, ServiceStatus] = field(default_factory=dict)
    _stopping: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, name: str, run: Run) -> None:
        """Start a service under a name of its own."""
        self.status[name] = ServiceStatus(name)
        self._stopping[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._keep(name, run), name=f"service {name}")

    async def stop(self, names: Sequence[str] | None = None) -> None:
        """Ask services (default: all) to stop, all at once; cancel those that take too long."""
        chosen = [name for name in (self._tasks if names is None else names) if name in self._tasks]
        for name in chosen:
            self._stopping[name].set()
        tasks = [self._tasks.pop(name) for name in chosen]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self.stop_timeout_s)
        for task in late:
            _log.warning("%s took longer than %.0f s to stop: cancelled", task.get_name(), self.stop_timeout_s)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, run: Run) -> None:
        status, stopping, pause_s = self.status[name], self._stopping[name], FIRST_PAUSE_S
        while not stopping.is_set():
            began = monotonic()
            status.state = "running"
            try:
                await run(stopping)
                error: Exception = Ended(f"{name} ended by itself")
            except Exception as failure:  # noqa: BLE001  whatever ends a service, the supervisor is where it is handled
                error = failure
            if stopping.is_set():
                break
            pause_s = FIRST_PAUSE_S if monotonic() - began > HEALTHY_AFTER_S else min(pause_s * 2, LONGEST_PAUSE_S)
            status.state, status.restarts, status.error = "waiting", status.restarts + 1, brief(error)
            _log.warning("%s stopped (%s); it starts again in %.1f s", name, status.error, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause_s * random.uniform(0.8, 1.2))
        status.state = "stopped"
        _log.debug("%s stopped", name)
