"""Beliefs: evidence as a set of counts; one run counts once, however often it is derived."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.beliefs import BELIEFS_PROJECTION, MAX_RECENT, day_of
from tests.unit.fold_runner import Folded, event, fold


def lived(n: int, run: str, counts: dict[str, dict[str, int]], version: int = 1, **more: Any) -> dict[str, Any]:
    """An experience at the agent's level: tool -> label -> count."""
    flat = [{"tool": tool, "label": label, "count": k} for tool, of in counts.items() for label, k in of.items()]
    envelope = {name: more.pop(name) for name in ("time", "agent", "user") if name in more}
    data = {"run": run, "deriver_version": version, "scope": "agent", "counts": flat, **more}
    return event("experience.recorded", n, **{"agent": "coder", "user": "u1", **envelope}, data=data)


def folded(*raws: dict[str, Any]) -> Folded:
    return fold(BELIEFS_PROJECTION, raws)


def buckets(found: Folded) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    labels = ("success", "deviated_success", "recoverable_failure", "fatal_failure")
    return {
        (row["belief"], row["day"]): counts
        for row in found.table("belief_counts")
        if any(counts := tuple(row[label] for label in labels))
    }


OK, BAD, FATAL = {"success": 2}, {"recoverable_failure": 1}, {"fatal_failure": 1}
DAY = day_of("2026-03-01T10:00:00Z")


def test_an_experience_counts_for_its_tools_by_day() -> None:
    found = folded(lived(1, "r1", {"grep": {"success": 2, "fatal_failure": 1, "unfinished": 5}}))
    assert buckets(found) == {("tool/grep", DAY): (2, 0, 0, 1)}
    belief = found.one("beliefs")
    assert (belief["kind"], belief["subject"], belief["evidence"]) == ("tool_reliability", "grep", 1)


@pytest.mark.parametrize(
    ("time", "days"),
    [("2026-03-01T23:59:59Z", 0), ("2026-03-02T00:00:00Z", 1), ("2026-03-02T00:30:00+08:00", 0)],
)
def test_days_are_utc_days(time: str, days: int) -> None:
    """C18."""
    assert day_of(time) == DAY + days


def test_unfinished_nodes_are_no_evidence() -> None:
    assert folded(lived(1, "r1", {"grep": {"unfinished": 3}})).table("beliefs") == []


def test_a_higher_deriver_version_takes_the_place_of_the_lower() -> None:
    found = folded(lived(1, "r1", {"grep": OK, "sed": BAD}), lived(2, "r1", {"grep": BAD}, version=2))
    assert buckets(found) == {("tool/grep", DAY): (0, 0, 1, 0)}
    assert {row["belief"]: row["evidence"] for row in found.table("beliefs")} == {"tool/grep": 1, "tool/sed": 0}
    assert [row["event_id"] for row in found.table("evidence")] == ["e2"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_lower_or_equal_version_changes_nothing(version: int) -> None:
    """C5."""
    first = lived(1, "r1", {"grep": OK}, version=2)
    again = lived(2, "r1", {"grep": BAD, "sed": BAD}, version=version)
    assert folded(first, again).dump() == folded(first).dump()


def test_fatal_failures_become_notices_that_a_rederivation_can_take_back() -> None:
    node = {"node": "c1", "kind": "call", "label": "fatal_failure", "tool": "rm", "cause": "wrong folder"}
    first = lived(1, "r1", {"rm": FATAL}, nodes=[node])
    found = folded(first)
    assert sorted((row["tool"], row["cause"], row["run"]) for row in found.table("notices")) == [
        ("rm", "", "r1"),
        ("rm", "wrong folder", "r1"),
    ]
    assert folded(first, lived(2, "r1", {"rm": BAD}, version=2)).table("notices") == []


def test_verdicts_stand_in_log_order_and_are_bounded() -> None:
    raws = [lived(n, f"r{n}", {"grep": OK if n % 2 else BAD}) for n in range(12)]
    recent = folded(*raws).one("beliefs")["recent"]
    assert recent == [[f"r{n}", n % 2 == 0] for n in range(12 - MAX_RECENT, 12)]


def test_a_rederived_verdict_keeps_its_place() -> None:
    raws = [lived(1, "r1", {"grep": OK}), lived(2, "r2", {"grep": OK}), lived(3, "r1", {"grep": BAD}, version=2)]
    assert folded(*raws).one("beliefs")["recent"] == [["r1", True], ["r2", False]]


def test_feedback_without_a_task_supports_what_it_says_once_an_occasion() -> None:
    """C47."""
    raws = [
        event("feedback.given", n, user="u1", session=session, text=text)
        for n, (session, text) in enumerate(
            [
                ("s1", "Only the conclusion, please"),
                ("s1", "only  the conclusion, please"),
                ("s2", "Only the conclusion, please"),
            ]
        )
    ]
    found = folded(*raws)
    belief = found.one("beliefs")
    assert (belief["kind"], belief["statement"], belief["evidence"]) == (
        "user_preference",
        "Only the conclusion, please",
        2,
    )
    assert found.one("belief_counts")["success"] == 2


def test_feedback_on_a_task_or_without_words_is_left_to_others() -> None:
    raws = [event("feedback.given", 1, user="u1", task="t1", text="x"), event("feedback.given", 2, user="u1", score=1)]
    assert folded(*raws).rows == {}


def test_a_proposal_a_check_and_a_retraction() -> None:
    data = {"belief": "b1", "kind": "learning", "statement": "run the tests first", "confidence": 0.6}
    raws = [
        event("belief.verified", 1, agent="coder", belief="b1", supports=True, scope="agent", by="calibrator"),
        event("belief.proposed", 2, agent="coder", data=data),
        event("belief.retracted", 3, agent="coder", belief="b1", reason="outdated", scope="agent"),
    ]
    row = folded(*raws).one("beliefs")
    assert (row["prior"], row["evidence"], row["retracted"], row["retracted_because"]) == (0.6, 1, True, "outdated")
    assert folded(*raws, event("belief.proposed", 4, agent="coder", data=data)).one("beliefs")["retracted"] is False


def test_beliefs_of_two_scopes_never_touch() -> None:
    found = folded(*(lived(n, "r1", {"grep": OK}, agent=f"a{n}") for n in (1, 2)))
    assert [row["evidence"] for row in found.table("beliefs")] == [1, 1]
    assert len(found.table("beliefs", key="agent/a1")) == 1


def test_long_belief_names_fit_an_index() -> None:
    """C29."""
    name = "".join(chr(0x4E00 + i * 7 % 20_000) for i in range(3_000))
    row = folded(event("belief.proposed", 1, agent="a", belief=name, kind="learning", statement=name)).one("beliefs")
    assert len(row["belief"].encode()) <= 96
    assert row["full"] == name


EXPERIENCES = st.tuples(
    st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 3), st.sampled_from([OK, BAD, FATAL]), st.integers(1, 28)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EXPERIENCES, max_size=12), st.integers(1, 12))
def test_any_batch_split_gives_the_same_rows(lives: list[Any], batch: int) -> None:
    raws = _raws(lives)
    assert fold(BELIEFS_PROJECTION, raws, batch=batch).dump() == fold(BELIEFS_PROJECTION, raws, batch=1).dump()


@settings(max_examples=30, deadline=None)
@given(st.lists(EXPERIENCES, max_size=4, unique_by=lambda life: life[:2]))
def test_counts_do_not_depend_on_the_order_of_evidence(lives: list[Any]) -> None:
    orders = [buckets(folded(*order)) for order in permutations(_raws(lives))]
    assert all(order == orders[0] for order in orders)


def _raws(lives: list[Any]) -> list[dict[str, Any]]:
    return [
        lived(n, run, {"grep": counts}, version, time=f"2026-02-{day:02}T10:00:00Z")
        for n, (run, version, counts, day) in enumerate(lives)
    ]
