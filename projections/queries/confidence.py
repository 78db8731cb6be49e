"""Confidence of a belief: a function of the set of its evidence and of the moment it is asked at.

    confidence = (W * prior + S) / (W + S + F)

S and F are the pieces of evidence for and against, each weighing 2^(-age / half-life) with its age in whole UTC days; W
is ``prior_weight``, what the prior is worth in pieces of evidence. With W = 4 and a prior of 0.5 one success of a fresh
rule makes 0.6, two 0.67, three 0.71, which is more than the 0.7 from which a belief is injected. Evidence from after
the moment asked at does not count, so that a wrong clock can never raise a confidence and the past can be asked. The
result is within 0..1 whatever the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType

from events.times import instant

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Evidence of one UTC day (whole days since 1970-01-01)."""

    day: int
    supports: int
    against: int


@dataclass(frozen=True)
class BeliefRules:
    """Thresholds and half-lives. A half-life of None: evidence does not age, as a person's own words do not."""

    prior: float = 0.5
    prior_weight: float = 4.0
    injected_above: float = 0.7
    untouched_days: int = 30
    demoting_failures: int = 2
    constraint_contexts: int = 3
    half_life_days: Mapping[str, float | None] = field(
        default_factory=lambda: MappingProxyType(
            {"tool_reliability": 30.0, "plan_pattern": 60.0, "learning": 90.0, "user_preference": None}
        )
    )

    def __post_init__(self) -> None:
        if any(half_life is not None and half_life < 0 for half_life in self.half_life_days.values()):
            raise ValueError("a half-life is a number of days from 0, or None for no decay")


DEFAULT_RULES = BeliefRules()


def confidence_at(
    buckets: Iterable[Bucket], at: datetime, *, prior: float | None, kind: str, rules: BeliefRules = DEFAULT_RULES
) -> float:
    """Confidence at a moment, within 0..1."""
    today = (at.astimezone(UTC).date() - _EPOCH).days
    half_life = rules.half_life_days.get(kind)
    supports = against = 0.0
    # sorted: a sum of floats must not depend on the order of rows
    for bucket in sorted(buckets, key=lambda bucket: bucket.day):
        weight = _weight(today - bucket.day, half_life)
        supports += weight * bucket.supports
        against += weight * bucket.against
    start = rules.prior if prior is None else prior
    return (rules.prior_weight * start + supports) / (rules.prior_weight + supports + against)


def _weight(age_days: int, half_life: float | None) -> float:
    if age_days < 0:
        return 0.0
    if half_life is None or age_days == 0:
        return 1.0
    return float(2.0 ** (-age_days / half_life)) if half_life > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the status of a belief depends on, besides its confidence."""

    kind: str
    retracted: bool
    founded: bool
    last_verified: str
    failures_in_a_row: int
    contexts: int


def status_at(standing: Standing, confidence: float, at: datetime, rules: BeliefRules = DEFAULT_RULES) -> str:
    """``retired | constraint | active | candidate`` at a moment.

    Retired: taken back, or nothing it stands on is left. Constraint: the same causal pattern was fatal in enough
    distinct contexts. Active: confident, not just failed twice in a row, and touched lately (a person's preference
    needs no touching). Candidate: everything else.
    """
    if standing.retracted or not standing.founded:
        return "retired"
    if standing.contexts >= rules.constraint_contexts:
        return "constraint"
    demoted = standing.failures_in_a_row >= rules.demoting_failures
    if confidence <= rules.injected_above or demoted or _untouched(standing, at, rules):
        return "candidate"
    return "active"


def _untouched(standing: Standing, at: datetime, rules: BeliefRules) -> bool:
    if standing.kind == "user_preference" or not standing.last_verified:
        return False
    return (at.astimezone(UTC) - instant(standing.last_verified)).days > rules.untouched_days
