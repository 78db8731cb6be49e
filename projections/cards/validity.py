"""How long a result holds: until when it says so itself, and what to look at again before relying on it.

* ``expires_in``, ``ttl``, ``max_age`` ... at the top of a result are seconds, ``expires_at``, ``valid_until`` ... a
  time. The card expires then (computed when it is read: a fold has no clock).
* Prices, fares, stock, free seats, balances, queues and the weather change by themselves: a result that holds such
  fields is to be looked up again before anybody relies on it. A template says so of its tool in its own words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache

from events.errors import Refused
from events.times import check_time, instant
from projections.cards.needs import words
from projections.cards.reading.facts import Fact

MAX_TTL_S = 1e9
"""A longer one is none, in seconds."""

_SECONDS = frozenset(
    ("ttl", "ttl_s", "expires_in", "expires_in_s", "valid_for", "valid_for_s", "max_age", "ttl_seconds")
)
_MOMENTS = frozenset(("expires_at", "expires", "valid_until", "expiration", "expiry", "not_after", "good_until"))
_LIMITS = _SECONDS | _MOMENTS
_CHANGES = frozenset((
    "price", "fare", "cost", "rate", "balance", "stock", "inventory", "availability", "available", "seat", "vacancy",
    "remaining", "queue", "temperature", "weather", "delay", "eta", "余票", "价格", "库存", "余额", "剩余",
))  # fmt: skip
_NAMED = 6
_NUMBER = re.compile(r"\d{1,12}(?:\.\d+)?")


def ttl_s(facts: Iterable[Fact], time: str) -> float | None:
    """Seconds after ``time`` for which a result says that it holds, or None. A moment that is past gives 0."""
    for field, _, text in facts:
        if field not in _LIMITS:
            continue
        if field in _MOMENTS:
            return _until(text, time)
        if _NUMBER.fullmatch(text):
            seconds = float(text)
            return seconds if seconds <= MAX_TTL_S else None
    return None


def _until(moment: str, time: str) -> float | None:
    try:
        seconds = (instant(check_time(moment)) - instant(time)).total_seconds()
    except (ValueError, OverflowError, Refused):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) and seconds <= MAX_TTL_S else None


@lru_cache(maxsize=2_048)
def refresh(fields: tuple[str, ...]) -> str:
    """What to look at again before relying on a result, ``""`` when nothing in it changes by itself."""
    own = dict.fromkeys(name for field in fields if _changes(field) for name in (field.rpartition(".")[2],))
    return f"look again before relying on {', '.join(list(own)[:_NAMED])}" if own else ""


@lru_cache(maxsize=8_192)
def _changes(field: str) -> bool:
    return not _CHANGES.isdisjoint(words(field.replace(".", "_")))
