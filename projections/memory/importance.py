"""What of a memory depends on now: whether it has expired, and how much it still matters. Pure functions of a row.

Importance is the curator's score, halved for every half-life since the memory was last said or recalled; each time the
number of recalls doubles, the half-life grows by one more of itself. So what is used is kept, and what is not, fades.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from events.times import instant

HALF_LIFE = timedelta(days=30)
UNSCORED = 0.7
"""Score of a memory that nobody scored: one that was kept verbatim, say."""


def expires_at(row: Mapping[str, Any]) -> datetime | None:
    """When its time to live ends; None: never."""
    if row["ttl_s"] is None or not row["last_verified"]:
        return None
    try:
        return instant(row["last_verified"]) + timedelta(seconds=row["ttl_s"])
    except OverflowError:
        return None


def status_at(row: Mapping[str, Any], now: datetime) -> str:
    """``active``, ``superseded``, ``invalidated``, ``deleted``, or ``expired`` for an active one past its time."""
    end = expires_at(row) if row["status"] == "active" else None
    return "expired" if end is not None and end <= now else str(row["status"])


def importance_at(row: Mapping[str, Any], now: datetime) -> float:
    """0..1; times in the future never raise it."""
    score = UNSCORED if row["score"] is None else min(max(float(row["score"]), 0.0), 1.0)
    last = max(row["last_verified"], row["last_access"])
    if not last:
        return score
    age = max(now - instant(last), timedelta())
    half_life = HALF_LIFE * (1 + math.log2(1 + row["hits"]))
    return float(score * 0.5 ** (age / half_life))
