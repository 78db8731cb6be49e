"""Confidence of a belief: a function of the set of its evidence and of the moment it is asked at.

    confidence = (W * prior + S) / (W + S + F)

S and F are the pieces of evidence for and against, each weighing 2^(-age / half-life) with its age in whole UTC days; W
is ``prior_weight``, what the prior is worth in pieces of evidence. Evidence of days after the one asked at does not
count, so that a wrong clock can never raise a confidence and the past can be asked. The result is within 0..1 whatever
the counts.

This is the mean of a Beta distribution: the rule of succession with a prior of W pieces (Laplace's own has W = 2), and
exponential forgetting. With W = 4 and a prior of 0.5 one success of a fresh rule makes 0.6, a tenth more (W = 2 would
make it 0.67); two make 0.67, three 0.71, which is more than the 0.7 from which a belief is injected: what was said
three times is a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import NamedTuple

from events.times import instant
from projections.belief.evidence import MAX_LATEST

_EPOCH = date(1970, 1, 1)


class Bucket(NamedTuple):
    """Evidence of one UTC day (whole days since 1970-01-01)."""

    day: int
    supports: int
    against: int


@dataclass(frozen=True)
class BeliefRules:
    """Thresholds and half-lives, and where their defaults come from.

    ``prior`` and ``prior_weight``: nothing known is even odds, and one success weighs a tenth (see above).
    ``injected_above`` 0.7, ``untouched_days`` 30, ``demoting_failures`` 2 and ``constraint_contexts`` 3 are the
    design's. ``softening_successes`` 2 takes back what a constraint stands on as two failures take back a rule.
    ``half_life_days`` by kind; None: evidence does not age, as a person's own words do not. Tools change most often and
    have 30 days, after which the design wants to see them again; plans 60, learnings 90: our choice, made before any
    measurement, longer for what changes more slowly. Raises ValueError for what is no rule.
    """

    prior: float = 0.5
    prior_weight: float = 4.0
    injected_above: float = 0.7
    untouched_days: int = 30
    demoting_failures: int = 2
    constraint_contexts: int = 3
    softening_successes: int = 2
    half_life_days: Mapping[str, float | None] = field(
        default_factory=lambda: MappingProxyType(
            {"tool_reliability": 30.0, "plan_pattern": 60.0, "learning": 90.0, "user_preference": None}
        )
    )

    def __post_init__(self) -> None:
        for name in ("prior", "injected_above"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a number from 0 to 1")
        if not 0 < self.prior_weight <= 1e6:
            raise ValueError("prior_weight is a number above 0, at most 1,000,000")
        for name, most in (
            ("untouched_days", 100_000), ("demoting_failures", MAX_LATEST), ("constraint_contexts", 1_000),
            ("softening_successes", 1_000),
        ):  # fmt: skip
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is a whole number from 1 to {most}")
        if any(days is not None and not 0 <= days <= 1e6 for days in self.half_life_days.values()):
            raise ValueError("a half-life is a number of days from 0, or None for no decay")


DEFAULT_RULES = BeliefRules()


def utc_day(at: datetime) -> int:
    """The bucket that a moment falls into."""
    return (at.astimezone(UTC).date() - _EPOCH).days


def confidence_at(
    buckets: Iterable[Bucket], at: datetime, *, prior: float | None, kind: str, rules: BeliefRules = DEFAULT_RULES
) -> float:
    """Confidence at a moment, within 0..1."""
    today, half_life = utc_day(at), rules.half_life_days.get(kind)
    supports = against = 0.0
    # sorted: a sum of floats must not depend on the order of rows
    for day, for_it, against_it in sorted(buckets):
        weight = weight_of(today - day, half_life)
        supports += weight * for_it
        against += weight * against_it
    start = rules.prior if prior is None else prior
    return (rules.prior_weight * start + supports) / (rules.prior_weight + supports + against)


def weight_of(age_days: int, half_life: float | None) -> float:
    """What a piece of evidence of that age weighs, 0..1; one from a day that is still to come weighs nothing."""
    if age_days < 0:
        return 0.0
    if half_life is None or age_days == 0:
        return 1.0
    return float(2.0 ** (-age_days / half_life)) if half_life > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the status of a belief depends on, besides its confidence.

    ``founded``: it was proposed, or has evidence. ``touched``: when it was last proposed or verified, empty: never.
    ``failures_in_a_row`` are those that are news: a tool's, above its baseline. ``constrained``: a pattern constrains.
    """

    kind: str
    retracted: bool
    founded: bool
    touched: str
    failures_in_a_row: int
    constrained: bool


def status_at(standing: Standing, confidence: float, at: datetime, rules: BeliefRules = DEFAULT_RULES) -> str:
    """``retired | constraint | active | candidate`` at a moment.

    Retired: taken back, or nothing it stands on is left. Constraint: a causal pattern of it constrains
    (``projections.belief.trauma``). Active: confident, not failed as often in a row as demotes, and touched lately (a
    person's preference needs no touching). Candidate: everything else.
    """
    if standing.retracted or not standing.founded:
        return "retired"
    if standing.constrained:
        return "constraint"
    demoted = standing.failures_in_a_row >= rules.demoting_failures
    if confidence <= rules.injected_above or demoted or _untouched(standing, at, rules):
        return "candidate"
    return "active"


def _untouched(standing: Standing, at: datetime, rules: BeliefRules) -> bool:
    if standing.kind == "user_preference" or not standing.touched:
        return False
    return (at.astimezone(UTC) - instant(standing.touched)).days > rules.untouched_days
