"""Which beliefs are looked at again, and what their evidence alone says of them. Pure.

Looked at are candidates that may become rules (0.5 to 0.7, and those that fell back from more), one in ``SAMPLE`` of
those below, another tenth at each slot, and active ones that nobody has touched for half as long as makes them fall
back. A person's own preference needs no touching.

What a review may change is when a belief was last found to hold, and nothing else: it is no evidence, so no belief can
feed on its own reviews. Evidence alone does not even move that: its review carries the time of the latest evidence.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from events.times import instant
from projections.queries.confidence import BeliefRules

SAMPLE = 10
"""Of beliefs of little confidence, one in so many is looked at."""
RECENT_DAYS = 30
"""What counts as the latest evidence: as long as an untouched rule holds by default."""
MOST_BECAUSE = 8
"""Events that a review names, at most: those of the latest evidence."""

Verdict = Literal["holds", "doubtful", "untouched"]


class Review(NamedTuple):
    """What was found. ``time``: as of when it holds, or was looked at."""

    verdict: Verdict
    detail: str
    time: datetime
    because: tuple[str, ...] = ()
    by: str = "evidence"
    tokens_in: int = 0
    tokens_out: int = 0
    latency_ms: float = 0.0


def is_due(belief: dict[str, Any], scope: str, slot: datetime, rules: BeliefRules) -> bool:
    """Whether a belief, as it stands at the slot, is looked at: one without any evidence by then is not."""
    if not belief["supports"] + belief["against"]:
        return False
    if belief["status"] == "candidate":
        return belief["confidence"] >= rules.prior or _drawn(scope, belief["belief"], slot)
    if belief["status"] != "active" or belief["kind"] == "user_preference":
        return False
    touched: str = belief.get("last_verified", "")
    return touched != "" and slot - instant(touched) > timedelta(days=rules.untouched_days / 2)


def by_evidence(document: dict[str, Any], slot: datetime) -> Review:
    """Whether the latest evidence speaks for the belief: more for than against it."""
    first = (slot - timedelta(days=RECENT_DAYS)).date().isoformat()
    recent = [day for day in document["days"] if first <= day["day"] <= slot.date().isoformat()]
    supports, against = (sum(day[name] for day in recent) for name in ("supports", "against"))
    known = [item for item in document["evidence"] if instant(item["time"]) <= slot]
    because = tuple(item["event_id"] for item in known[:MOST_BECAUSE])
    detail = f"in {RECENT_DAYS} days {supports} for it, {against} against it"
    if not supports and not against:
        return Review("untouched", detail, slot)
    if supports <= against:
        return Review("doubtful", detail, slot, because)
    latest = max((instant(item["time"]) for item in known), default=slot)
    return Review("holds", detail, latest.astimezone(UTC), because)


def _drawn(scope: str, belief: str, slot: datetime) -> bool:
    """Whether a belief is in the sample of a slot: drawn by its name, so that everybody draws alike."""
    name = "\x1f".join((scope, belief, slot.isoformat())).encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % SAMPLE == 0
