"""Keeping long work below a number of events a second, so that it leaves room for the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from events.errors import Refused

SMOOTH_S = 0.2
"""Work is cut into pieces of about this length, so that it does not come in bursts."""


class Pace:
    """Holds its caller to ``max_events_per_s``; None is no limit. Time that was not used is not saved up.

    Raises Refused for a limit that is not above 0.
    """

    def __init__(self, max_events_per_s: float | None = None) -> None:
        if max_events_per_s is not None and not 0 < max_events_per_s < math.inf:
            raise Refused(f"a limit of {max_events_per_s} events a second: give a number above 0, or none", code="rate")
        self._limit = max_events_per_s
        self._next = time.monotonic()

    def batch(self, wanted: int) -> int:
        """How many events to take at a time, at most ``wanted``."""
        return wanted if self._limit is None else max(1, min(wanted, int(self._limit * SMOOTH_S)))

    def hold(self, events: int, watch: Callable[[], object]) -> None:
        """Wait until more events may follow those just taken; ``watch`` is called meanwhile, and may raise."""
        if self._limit is None:
            return
        now = time.monotonic()
        self._next = max(now, self._next + events / self._limit)
        while (wait := self._next - now) > 0:
            time.sleep(min(wait, SMOOTH_S))
            watch()
            now = time.monotonic()
