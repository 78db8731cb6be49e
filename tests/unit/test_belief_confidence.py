"""Confidence: a function of the set of evidence and the moment, within 0..1 whatever the counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.belief.evidence import day_of
from projections.queries.confidence import BeliefRules, Bucket, Standing, confidence_at, status_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TODAY = day_of("2026-03-01T12:00:00+00:00")
TOOL, PREFERENCE = "tool_reliability", "user_preference"


def confidence(*buckets: Bucket, at: datetime = NOW, kind: str = TOOL, prior: float | None = None) -> float:
    return confidence_at(buckets, at, prior=prior, kind=kind)


def test_one_success_of_a_fresh_rule_weighs_a_tenth() -> None:
    assert confidence() == 0.5
    assert confidence(Bucket(TODAY, 1, 0)) == pytest.approx(0.6)
    assert confidence(Bucket(TODAY, 0, 1)) == pytest.approx(0.4)


def test_three_times_make_a_preference_and_it_does_not_fade() -> None:
    told = Bucket(TODAY, 3, 0)
    assert confidence(told, kind=PREFERENCE) > 0.7
    assert confidence(told, kind=PREFERENCE, at=NOW + timedelta(days=3_000)) > 0.7


def test_evidence_halves_with_its_half_life() -> None:
    later = NOW + timedelta(days=30)
    assert confidence(Bucket(TODAY, 2, 0), at=later) == pytest.approx((2 + 1) / (4 + 1))


def test_evidence_from_the_future_counts_for_nothing() -> None:
    future = Bucket(TODAY + 400, 1_000, 0)
    assert confidence(future) == 0.5
    assert confidence(Bucket(TODAY, 1, 0), future, at=NOW - timedelta(days=1)) == 0.5


def test_days_are_those_of_utc_wherever_the_reader_is() -> None:
    """C18."""
    elsewhere = datetime.fromisoformat("2026-03-02T07:30:00+08:00")  # 23:30 of March 1st in UTC
    assert confidence(Bucket(TODAY + 1, 1, 0), at=elsewhere) == 0.5
    assert confidence(Bucket(TODAY, 1, 0), at=elsewhere) == pytest.approx(0.6)


def test_a_half_life_of_zero_knows_only_today_and_a_negative_one_is_refused() -> None:
    rules = BeliefRules(half_life_days={TOOL: 0.0})
    old, new = Bucket(TODAY - 1, 9, 0), Bucket(TODAY, 1, 0)
    assert confidence_at([old, new], NOW, prior=None, kind=TOOL, rules=rules) == pytest.approx(0.6)
    with pytest.raises(ValueError, match="half-life"):
        BeliefRules(half_life_days={TOOL: -1.0})


BUCKETS = st.lists(
    st.builds(Bucket, st.integers(TODAY - 20_000, TODAY + 20_000), st.integers(0, 10**12), st.integers(0, 10**12))
)


@given(BUCKETS, st.floats(0, 1), st.sampled_from([TOOL, PREFERENCE, "learning", "plan_pattern"]))
def test_it_is_a_share_and_free_of_order(buckets: list[Bucket], prior: float, kind: str) -> None:
    first = confidence(*buckets, prior=prior, kind=kind)
    assert 0 <= first <= 1
    merged: dict[int, Bucket] = {}
    for bucket in reversed(buckets):
        known = merged.get(bucket.day, Bucket(bucket.day, 0, 0))
        merged[bucket.day] = Bucket(bucket.day, known.supports + bucket.supports, known.against + bucket.against)
    assert confidence(*merged.values(), prior=prior, kind=kind) == pytest.approx(first)


@given(BUCKETS, st.integers(1, 5_000))
def test_a_future_support_never_raises_it(buckets: list[Bucket], ahead: int) -> None:
    assert confidence(*buckets, Bucket(TODAY + ahead, 5, 0)) == confidence(*buckets)


def standing(**changed: object) -> Standing:
    fields = {
        "kind": TOOL,
        "retracted": False,
        "founded": True,
        "touched": "2026-02-20T00:00:00+00:00",
        "failures_in_a_row": 0,
        "constrained": False,
    }
    return Standing(**{**fields, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "sure", "status"),
    [
        ({}, 0.71, "active"),
        ({}, 0.7, "candidate"),
        ({"failures_in_a_row": 1}, 0.9, "active"),
        ({"failures_in_a_row": 2}, 0.9, "candidate"),
        ({"touched": "2026-01-01T00:00:00+00:00"}, 0.9, "candidate"),
        ({"touched": "2026-01-01T00:00:00+00:00", "kind": PREFERENCE}, 0.9, "active"),
        ({"constrained": True}, 0.2, "constraint"),
        ({"retracted": True}, 0.9, "retired"),
        ({"founded": False}, 0.5, "retired"),
    ],
)
def test_status_follows_from_confidence_and_standing(changed: dict[str, object], sure: float, status: str) -> None:
    assert status_at(standing(**changed), sure, NOW) == status
