"""Beliefs: evidence as a set of counts; one run counts once, however often it is derived, whatever the order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.errors import Refused
from events.types.belief import LAST_WORD
from projections.belief.evidence import MAX_LATEST, day_of
from projections.belief.tables import LABELS
from projections.beliefs import BELIEFS_PROJECTION
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
    return {
        (row["belief"], row["day"]): counts
        for row in found.table("belief_counts")
        if any(counts := tuple(row[label] for label in LABELS))
    }


OK, BAD, FATAL = {"success": 2}, {"recoverable_failure": 1}, {"fatal_failure": 1}
DAY = day_of("2026-03-01T10:00:00+00:00")


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
    assert folded(lived(1, "r1", {"grep": OK}, time=time)).one("belief_counts")["day"] == DAY + days


def test_unfinished_nodes_are_no_evidence() -> None:
    assert folded(lived(1, "r1", {"grep": {"unfinished": 3}})).table("beliefs") == []


def test_a_higher_deriver_version_takes_the_place_of_the_lower() -> None:
    found = folded(lived(1, "r1", {"grep": OK, "sed": BAD}), lived(2, "r1", {"grep": BAD}, version=2))
    assert buckets(found) == {("tool/grep", DAY): (0, 0, 1, 0)}
    assert {row["belief"]: row["evidence"] for row in found.table("beliefs")} == {"tool/grep": 1, "tool/sed": 0}
    assert [row["event_id"] for row in found.table("evidence")] == ["e2"]


@pytest.mark.parametrize(("version", "revision"), [(1, 9), (2, 1)])
def test_a_lower_version_or_revision_counts_for_nothing(version: int, revision: int) -> None:
    """C5."""
    first = lived(1, "r1", {"grep": OK}, version=2, revision=2)
    found = folded(first, lived(2, "r1", {"grep": BAD, "sed": BAD}, version=version, revision=revision))
    assert buckets(found) == buckets(folded(first))
    assert {row["belief"]: row["evidence"] for row in found.table("beliefs")} == {"tool/grep": 1, "tool/sed": 0}


def test_feedback_a_month_later_is_judged_in_the_next_revision_and_on_the_day_of_the_run() -> None:
    run_end = "2026-02-01T10:00:00Z"
    raws = [lived(1, "r1", {"book": OK}, time=run_end), lived(2, "r1", {"book": FATAL}, revision=2, time=run_end)]
    for order in permutations(raws):
        assert buckets(folded(*order)) == {("tool/book", DAY - 28): (0, 0, 0, 1)}


def test_the_tools_and_the_path_of_a_run_are_its_agents_to_judge() -> None:
    whole: dict[str, Any] = {"scope": "user", "path": "search > book", "path_label": "success"}
    assert folded(lived(1, "r1", {"book": OK}, **whole)).table("beliefs") == []
    assert len(folded(lived(1, "r1", {"book": OK}, agent="", **whole)).table("beliefs")) == 2


def test_a_path_is_a_plan_pattern() -> None:
    raws = [lived(n, f"r{n}", {}, path="search > book", path_label=label) for n, label in enumerate(
        ("success", "fatal_failure", "unfinished"))]  # fmt: skip
    found = folded(*raws)
    row = found.one("beliefs")
    assert (row["kind"], row["subject"], row["evidence"]) == ("plan_pattern", "search > book", 2)
    assert buckets(found) == {(row["belief"], DAY): (1, 0, 0, 1)}


def test_fatal_failures_become_notices_that_a_rederivation_can_take_back() -> None:
    node = {"node": "c1", "kind": "call", "label": "fatal_failure", "tool": "rm", "cause": "no /tmp/x"}
    more = {"pattern": "rm: no #", "context": "c0ffee", "event": "e-call"}
    first = lived(1, "r1", {"rm": FATAL}, scope="user", nodes=[node | more])
    row = folded(first).one("notices")
    assert (row["tool"], row["cause"], row["contexts"], row["because"]) == ("rm", "rm: no #", {"c0ffee": 1}, ["e-call"])
    assert folded(first, lived(2, "r1", {"rm": BAD}, version=2, scope="user")).table("notices") == []


def test_nodes_that_are_no_evidence_make_no_notice() -> None:
    node = {"node": "c1", "kind": "call", "label": "fatal_failure", "tool": "rm", "evidence": False}
    assert folded(lived(1, "r1", {}, nodes=[node])).table("notices") == []


def test_beyond_its_user_a_fatal_pattern_names_no_value() -> None:
    fatal = [{"tool": "rm", "pattern": "not_found~00aa11bb", "context": "c0ffee", "count": 2}]
    row = folded(lived(1, "r1", {"rm": FATAL}, fatal=fatal)).one("notices")
    assert (row["cause"], row["contexts"]) == ("not_found~00aa11bb", {"c0ffee": 2})


def test_the_latest_verdicts_stand_in_order_of_their_times_and_are_bounded() -> None:
    """C37."""
    raws = [lived(n, f"r{n:02}", {"grep": OK if n % 2 else BAD}) for n in range(12)]
    expected = [[f"2026-03-01T10:00:{n:02}+00:00", f"r{n:02}", 0 if n % 2 else 1, 2 if n % 2 else 1] for n in range(12)]
    assert folded(*raws).one("beliefs")["latest"] == expected[-MAX_LATEST:]
    assert folded(*reversed(raws)).one("beliefs")["latest"] == expected[-MAX_LATEST:]


def test_a_run_that_is_taken_back_leaves_nothing_of_its_counts_in_any_order() -> None:
    raws = [
        lived(1, "r1", {"grep": OK, "rm": FATAL}, path="grep > rm", path_label="fatal_failure"),
        lived(2, "r1", {}, version=LAST_WORD),
        lived(3, "r1", {"grep": OK}, version=9),
    ]
    for order in permutations(raws):
        found = folded(*order)
        assert (buckets(found), found.table("evidence"), found.table("notices")) == ({}, [], [])
        assert {row["evidence"] for row in found.table("beliefs")} == {0}


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
    for order in permutations(raws):
        found = folded(*order)
        belief = found.one("beliefs")
        assert (belief["kind"], belief["subject"], belief["evidence"]) == (
            "user_preference",
            "Only the conclusion, please",
            2,
        )
        assert found.one("belief_counts")["success"] == 2
        assert [row["event_id"] for row in found.table("evidence")] in (["e0", "e2"], ["e2", "e0"])


def test_one_occasion_counts_once_for_a_belief_as_its_latest_event_says() -> None:
    """C47, and contradictory feedback."""
    raws = [
        event("belief.verified", n, user="u1", data={"belief": "b1", "supports": supports, "source": source})
        for n, (source, supports) in enumerate([("s1", True), ("s1", False), ("", True), ("", True)])
    ]
    for order in permutations(raws):
        found = folded(*order)
        assert buckets(found) == {("b1", DAY): (2, 0, 1, 0)}
        assert found.one("evidence", source="s1")["event_id"] == "e1"


def test_feedback_on_a_task_or_without_words_is_left_to_others() -> None:
    raws = [event("feedback.given", 1, user="u1", task="t1", text="x"), event("feedback.given", 2, user="u1", score=1)]
    assert folded(*raws).rows == {}


def test_an_occasion_can_take_back_what_it_said() -> None:
    """What it said later counts again, and a day without evidence has no row."""
    said: list[dict[str, Any]] = [
        {"source": "s1"},
        {"source": "s1", "withdrawn": True},
        {"source": "s2"},
        {"source": "s2", "withdrawn": True},
    ]
    raws = [
        event("belief.verified", n, user="u1", time=f"2026-03-0{day}T10:00:00Z", data={
            "belief": "b1", "supports": True, **one})
        for n, (day, one) in enumerate(zip((1, 2, 5, 4), said, strict=True))
    ]  # fmt: skip
    dumps = set()
    for order in permutations(raws):
        found = folded(*order)
        assert (buckets(found), found.one("beliefs")["evidence"]) == ({("b1", DAY + 4): (1, 0, 0, 0)}, 1)
        dumps.add(found.dump())
    assert len(dumps) == 1


def test_a_proposal_a_check_and_a_retraction_in_any_order() -> None:
    data = {"belief": "b1", "kind": "learning", "statement": "run the tests first", "confidence": 0.6}
    more = {"limits": {"repository": "ours"}, "because": ["e-0"], "elsewhere": [{"supports": 3}]}
    raws = [
        event("belief.proposed", 0, agent="coder", data={**data, "statement": "test"}),
        event("belief.verified", 1, agent="coder", belief="b1", supports=True, scope="agent", because=["e-7"]),
        event("belief.proposed", 2, agent="coder", data={**data, **more}),
        event("belief.retracted", 3, agent="coder", belief="b1", reason="outdated", scope="agent"),
    ]
    dumps = {folded(*order).dump() for order in permutations(raws)}
    assert len(dumps) == 1
    found = folded(*raws)
    row = found.one("beliefs")
    assert (row["statement"], row["prior"], row["limits"], row["evidence"], row["retracted_because"]) == (
        "run the tests first", 0.6, more["limits"], 1, "outdated"
    )  # fmt: skip
    assert row["retracted_at"] > row["proposed_at"]
    assert found.one("evidence")["because"] == ["e-7"]
    grounds = found.one("belief_grounds", event="e2")
    assert (grounds["because"], grounds["elsewhere"]) == (["e-0"], [{"supports": 3}])
    assert [row["act"] for row in found.table("belief_grounds")] == ["proposed", "proposed", "retracted"]


def test_a_review_touches_a_belief_and_counts_for_nothing() -> None:
    review = {"belief": "b1", "slot": "w1", "confidence": 0.6, "scope": "agent"}
    raws = [event("belief.reviewed", n, agent="a", verdict=verdict, **review) for n, verdict in enumerate(
        ("holds", "doubtful", "untouched"))]  # fmt: skip
    row = folded(*raws).one("beliefs")
    assert (row["reviewed_at"], row["evidence"]) == ("2026-03-01T10:00:00+00:00", 0)


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


@pytest.mark.parametrize("name", ["cafe\u0301", "caf\u00e9", "\uff43\uff41\uff46\u00e9"])
def test_a_belief_is_one_however_its_name_is_written(name: str) -> None:
    """C31."""
    assert (
        folded(event("belief.proposed", 1, agent="a", belief=name, kind="learning")).one("beliefs")["belief"] == "café"
    )
    assert folded(lived(1, "r1", {name: OK})).one("beliefs")["belief"] == "tool/café"
    said = event("feedback.given", 1, user="u1", session="s1", text=f"{name}, please")
    again = event("feedback.given", 2, user="u1", session="s2", text="CAFÉ please!")
    assert folded(said, again).one("beliefs")["evidence"] == 2


@pytest.mark.parametrize("confidence", [85, -1, "0.9", None, float("nan")])
def test_a_confidence_that_is_none_is_refused_at_the_door(confidence: object) -> None:
    """C35."""
    with pytest.raises(Refused, match=r"confidence|nan"):
        folded(event("belief.proposed", 1, agent="a", belief="b", kind="learning", confidence=confidence))


EXPERIENCES = st.tuples(
    st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 3), st.sampled_from([OK, BAD, FATAL]), st.integers(1, 28)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(EXPERIENCES, max_size=12), st.integers(1, 12))
def test_any_batch_split_gives_the_same_rows(lives: list[Any], batch: int) -> None:
    raws = _raws(lives)
    assert fold(BELIEFS_PROJECTION, raws, batch=batch).dump() == fold(BELIEFS_PROJECTION, raws, batch=1).dump()


HOUR = st.integers(0, 23)
BELIEVED = st.one_of(
    st.builds(lambda run, version, revision, counts, hour, path: (
        "experience.recorded", hour, {"run": run, "deriver_version": version, "revision": revision, "scope": "agent",
        "counts": counts, "path": path, "path_label": "success",
        "fatal": [{"tool": "rm", "pattern": path, "context": path}]}),
        st.sampled_from(["r1", "r2", "r3", "r4"]), st.integers(1, 2), st.integers(1, 2),
        st.lists(st.builds(lambda tool, label, n: {"tool": tool, "label": label, "count": n},
            st.sampled_from(["grep", "sed"]), st.sampled_from(LABELS), st.integers(1, 3)), max_size=2),
        HOUR, st.sampled_from(["", "grep", "grep > sed"])),
    st.builds(lambda name, supports, gone, source, hour: (
        "belief.verified", hour, {"belief": name, "supports": supports, "withdrawn": gone, "source": source,
        "scope": "agent"}),
        st.sampled_from(["b1", "tool/grep"]), st.booleans(), st.booleans(), st.sampled_from(["", "s1", "s2"]), HOUR),
    st.builds(lambda name, prior, hour: (
        "belief.proposed", hour, {"belief": name, "kind": "learning", "confidence": prior, "scope": "agent"}),
        st.sampled_from(["b1", "tool/grep"]), st.sampled_from([0.2, 0.8]), HOUR),
    st.builds(lambda hour: ("belief.retracted", hour, {"belief": "b1", "scope": "agent"}), HOUR),
    st.builds(lambda text, hour: ("feedback.given", hour, {"text": text}), st.sampled_from(["No", "no!", "yes"]), HOUR),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(BELIEVED, max_size=14), st.randoms(use_true_random=False))
def test_the_rows_are_a_function_of_the_set_of_events(believed: list[Any], shuffler: Any) -> None:
    """C5, C36, C37, C43: whatever the order in which reactors append, and though some are read again."""
    raws = [
        event(kind, n, agent="coder", time=f"2026-02-0{1 + n % 2}T{hour:02}:00:00Z", data=data)
        for n, (kind, hour, data) in enumerate(believed)
    ]
    shuffled = [*raws, *raws[::3]]
    shuffler.shuffle(shuffled)
    assert folded(*shuffled).dump() == folded(*raws).dump()


def _raws(lives: list[Any]) -> list[dict[str, Any]]:
    return [
        lived(n, run, {"grep": counts}, version, time=f"2026-02-{day:02}T10:00:00Z")
        for n, (run, version, counts, day) in enumerate(lives)
    ]
