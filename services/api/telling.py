"""What a job process tells on its standard output, a JSON object a line: progress, and how it ended.

Whatever else is printed in it, by a fold or a library say, goes to standard error: it is no part of what is told.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from typing import Any, BinaryIO

import orjson

from projections.rebuilding.progress import Progress

REPORT_EVERY_S = 0.1


def say(projection: str = "", **value: Any) -> None:
    """Tell something of a projection, or of the whole job."""
    named = {"projection": projection} if projection else {}
    told = channel()
    told.write(orjson.dumps(named | value, default=str) + b"\n")
    told.flush()


@cache
def channel() -> BinaryIO:
    """What was standard output when this was called first; from then on, standard output is standard error."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return told


def say_progress(projection: str, progress: Progress) -> None:
    """Tell how far a rebuild is."""
    known = {"phase": progress.phase, "events": progress.done, "total": progress.total}
    say(projection, progress={**known, "events_per_s": progress.events_per_s})


class Throttled:
    """Tells progress at most every REPORT_EVERY_S: ``share`` events of ``total``, which follow ``before`` others.

    Without a share, the events are told as they are counted.
    """

    def __init__(self, phase: str, before: int = 0, share: int | None = None, total: int = 0) -> None:
        self._phase, self._before, self._share, self._total = phase, before, share, total
        self._told_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        """``done`` of ``total`` events are folded."""
        now = time.monotonic()
        if now - self._told_s < REPORT_EVERY_S and done != total:
            return
        self._told_s = now
        if self._share is not None:
            done, total = self._before + (self._share * done // total if total else self._share), self._total
        say(progress={"phase": self._phase, "events": done, "total": total})
