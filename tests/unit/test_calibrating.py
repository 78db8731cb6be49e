"""When beliefs are looked at again, which, and what their evidence alone says."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.queries.confidence import DEFAULT_RULES
from services.calibrating.review import SAMPLE, by_evidence, is_due
from services.schedule import DAYS, Schedule
from services.settings import Settings, SetupError

SLOT = datetime(2026, 3, 29, 1, tzinfo=UTC)


def schedule(text: str) -> Schedule:
    found = Schedule.parse(text)
    assert found is not None
    return found


def slots(text: str, first: datetime, last: datetime) -> list[datetime]:
    """Every slot between two moments, as one finds them who goes from each to the next."""
    found = [schedule(text).following(first)]
    while found[-1] <= last:
        found.append(schedule(text).following(found[-1]))
    return found[:-1]


@pytest.mark.parametrize(
    ("text", "day", "slot"),
    [
        ("daily 02:30 Europe/Berlin", 29, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),  # skipped: 03:30 summer time
        ("sunday 02:30 Europe/Berlin", 29, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("daily 03:00", 29, datetime(2026, 3, 29, 3, tzinfo=UTC)),
    ],
)
def test_a_time_that_the_clock_skips_is_one_slot(text: str, day: int, slot: datetime) -> None:
    start = datetime(2026, 3, day, tzinfo=UTC)
    assert slots(text, start, start + timedelta(hours=22)) == [slot]


def test_a_time_that_the_clock_shows_twice_is_one_slot_the_first() -> None:
    start = datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert slots("daily 02:30 Europe/Berlin", start, start + timedelta(hours=24)) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    ]


@given(
    st.integers(1_577_836_800, 2_051_222_400).map(lambda second: datetime.fromtimestamp(second, UTC)),
    st.sampled_from([*DAYS, "daily"]),
    st.times(),
    st.sampled_from(
        ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"]
    ),
)
def test_every_moment_lies_between_two_slots(now: datetime, day: str, at: Any, zone: str) -> None:
    """Whoever asks at any moment finds the slot before it and the one after it, and nobody finds another between."""
    found = schedule(f"{day} {at:%H:%M} {zone}")
    last, following = found.latest(now), found.following(now)
    assert last <= now < following
    assert found.following(last) == following
    assert found.latest(following) == following
    least, most = (20, 28) if day == "daily" else (6 * 24, 8 * 24)
    assert timedelta(hours=least) <= following - last <= timedelta(hours=most)


@pytest.mark.parametrize(
    "text", ["", "sunday", "sunday 25:00", "someday 03:00", "sunday 03:00 Mars/Base", "Sunday 3", "sunday 03:00 ../x"]
)
def test_what_is_no_schedule_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="like"):
        Schedule.parse(text)
    if text:
        with pytest.raises(SetupError, match="REFOLD_CALIBRATE"):
            Settings.read({"REFOLD_CALIBRATE": text})


def test_off_is_no_schedule() -> None:
    assert Schedule.parse("off") is None
    assert Settings.read({"REFOLD_CALIBRATE": "off"}).calibrate == "off"


def belief(name: str = "b1", **more: Any) -> dict[str, Any]:
    return {
        "belief": name,
        "status": "candidate",
        "confidence": 0.6,
        "kind": "learning",
        "supports": 1,
        "against": 0,
        **more,
    }


def due(**more: Any) -> bool:
    return is_due(belief(**more), "agent/a", SLOT, DEFAULT_RULES)


def test_candidates_and_what_is_long_untouched_are_looked_at() -> None:
    assert due()
    assert due(confidence=0.5)
    assert due(confidence=0.72), "it fell back"
    assert not due(status="retired")
    assert not due(supports=0)
    assert not due(status="constraint")
    assert not due(status="active", last_verified="2026-03-20T10:00:00+00:00")
    assert due(status="active", last_verified="2026-03-10T10:00:00+00:00")
    assert not due(status="active", last_verified="2026-03-10T10:00:00+00:00", kind="user_preference")


def test_of_little_confidence_another_tenth_is_drawn_at_each_slot() -> None:
    names = [f"b{n}" for n in range(1_000)]
    drawn = Counter(
        name
        for week in range(2 * SAMPLE)
        for name in names
        if is_due(belief(name, confidence=0.3), "agent/a", SLOT + timedelta(weeks=week), DEFAULT_RULES)
    )
    assert 1_600 < drawn.total() < 2_400
    assert len(drawn) > 800, "over the weeks nearly all of them"


def document(*days: tuple[str, int, int], evidence: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    found = [{"day": day, "supports": supports, "against": against} for day, supports, against in days]
    return {"days": found, "evidence": evidence or []}


def test_the_latest_evidence_decides_and_a_review_moves_no_time() -> None:
    last = {"time": "2026-03-20T10:00:00+00:00", "event_id": "e1"}
    later = {"time": "2026-04-20T10:00:00+00:00", "event_id": "e2"}
    held = by_evidence(document(("2026-03-20", 2, 1), ("2025-01-01", 0, 9), evidence=[later, last]), SLOT)
    assert (held.verdict, held.time.isoformat(), held.because) == ("holds", last["time"], ("e1",))
    assert by_evidence(document(("2026-03-20", 1, 1)), SLOT).verdict == "doubtful"
    assert by_evidence(document(("2026-03-20", 0, 1), ("2026-01-01", 9, 0)), SLOT).verdict == "doubtful"
    assert by_evidence(document(("2026-01-01", 9, 0)), SLOT).verdict == "untouched"
    assert by_evidence(document(("2026-04-20", 9, 0)), SLOT).verdict == "untouched", "nothing is known of later days"
