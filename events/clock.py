"""The wall clock, for what is only told and orders nothing."""

from __future__ import annotations

import time


def now_ms() -> int:
    """This moment in Unix milliseconds."""
    return time.time_ns() // 1_000_000
