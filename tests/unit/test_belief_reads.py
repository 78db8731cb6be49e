"""What beliefs come to when they are read: outages and recoveries, constraints that soften, a baseline, bad input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine

from events.types.belief import LAST_WORD
from projections.beliefs import BELIEFS_PROJECTION
from projections.queries import beliefs
from projections.queries.confidence import BeliefRules
from projections.queries.policy import learned_of
from tests.unit.fold_runner import event, fold

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
Read = Callable[[list[dict[str, Any]]], Connection]


@pytest.fixture
def stored() -> Iterator[Read]:
    """Fold raw events and store the rows; gives a connection to read them on."""
    engines = []
    open_connections = []

    def store(raws: list[dict[str, Any]]) -> Connection:
        engine = create_engine("sqlite://")
        engines.append(engine)
        BELIEFS_PROJECTION.tables[0].metadata.create_all(engine)
        connection = engine.connect()
        open_connections.append(connection)
        fold(BELIEFS_PROJECTION, raws).store(connection)
        return connection

    yield store
    for connection in open_connections:
        connection.close()
    for engine in engines:
        engine.dispose()


def used(
    at: datetime, run: str, ok: int = 0, bad: int = 0, *, tool: str = "pay", context: str = "", **more: Any
) -> dict[str, Any]:
    """A run of the agent in which the tool worked and failed so often; ``fatal`` names the pattern it died of."""
    pattern = more.pop("fatal", "")
    label = "fatal_failure" if pattern else "recoverable_failure"
    contexts = [context] if context else []
    counts = [{"tool": tool, "label": "success", "count": ok, "contexts": contexts}] if ok else []
    counts += [{"tool": tool, "label": label, "count": bad, "contexts": contexts}] if bad else []
    data = {
        "run": run, "deriver_version": 1, "scope": "agent", "counts": counts,
        "fatal": [{"tool": tool, "pattern": pattern, "context": context}] if pattern else [], **more,
    }  # fmt: skip
    return event("experience.recorded", id=f"e-{run}", agent="clerk", time=at.isoformat(), data=data)


def the(conn: Connection, name: str = "tool/pay", *, at: datetime, scope: str = "agent/clerk", **rules: Any) -> Any:
    found = beliefs.beliefs_of(conn, "default", scope, now=at, rules=BeliefRules(**rules))
    return next(one for one in found if one["belief"] == name)


# --- an outage -------------------------------------------------------------------------------------------------------


def outage() -> list[dict[str, Any]]:
    """Two weeks of five runs a day; the tool is down for two days, and works again from then on."""
    raws = []
    for day in range(14):
        down = day in (5, 6)
        for n in range(5):
            at = MONDAY + timedelta(days=day, hours=n)
            raws.append(used(at, f"d{day}-{n}", *((0, 1) if down else (1, 0))))
    return raws


def test_a_tool_that_is_down_for_two_days_is_believed_again(stored: Read) -> None:
    raws = outage()
    Random(7).shuffle(raws)
    conn = stored(raws)
    curve = [the(conn, at=MONDAY + timedelta(days=day, hours=8)) for day in range(14)]
    for day, belief in enumerate(curve):
        print(f"day {day:2} {belief['confidence']:.3f} {belief['status']:9} {belief['failures_in_a_row']} in a row")
    statuses = [belief["status"] for belief in curve]
    assert statuses[0] == "active", "five successes: (2 + 5) / (4 + 5)"
    assert statuses[5:7] == ["candidate", "candidate"]
    assert curve[4]["confidence"] > curve[5]["confidence"] > curve[6]["confidence"]
    assert [belief["failures_in_a_row"] for belief in curve[5:9]] == [5, 8, 0, 0], (
        "of 10 failures the latest 8 are kept"
    )
    assert statuses[-1] == "active", "it recovers by itself"
    assert all(later["confidence"] > before["confidence"] for before, later in pairwise(curve[6:]))


def test_two_failures_demote_at_once_and_a_success_ends_the_row(stored: Read) -> None:
    raws = [used(MONDAY + timedelta(hours=n), f"r{n}", 1) for n in range(9)]
    raws += [used(MONDAY + timedelta(hours=9 + n), f"f{n}", bad=1) for n in range(2)]
    conn = stored(raws)
    once, twice = (the(conn, at=MONDAY + timedelta(hours=9 + n, minutes=1)) for n in range(2))
    assert (once["failures_in_a_row"], once["status"]) == (1, "active")
    assert (twice["failures_in_a_row"], twice["status"]) == (2, "candidate")
    assert twice["confidence"] > 0.7, "it is the row that demotes, not the figure"
    after = stored([*raws, used(MONDAY + timedelta(hours=12), "good", 1)])
    assert the(after, at=MONDAY + timedelta(hours=13))["status"] == "active"


def test_a_tool_that_fails_no_more_than_ever_is_not_demoted(stored: Read) -> None:
    """Its failures are held against its own baseline: three of ten fail as ever, and now two in a row."""
    raws = [used(MONDAY + timedelta(hours=n), f"r{n:02}", 8, 3) for n in range(10)]
    raws += [used(MONDAY + timedelta(hours=20 + n), f"z{n}", 0, 1) for n in range(2)]
    rules: dict[str, Any] = {"injected_above": 0.65}
    belief = the(stored(raws), at=MONDAY + timedelta(days=1), **rules)
    assert (belief["failures_in_a_row"], belief["status"]) == (2, "active")
    steady = [used(MONDAY + timedelta(hours=n), f"r{n:02}", 11) for n in range(10)]
    changed = the(stored([*steady, *raws[-2:]]), at=MONDAY + timedelta(days=1), **rules)
    assert (changed["failures_in_a_row"], changed["status"]) == (2, "candidate")


def test_thirty_days_untouched_is_a_candidate_until_a_review_finds_that_it_holds(stored: Read) -> None:
    raws = [event("belief.verified", n, agent="clerk", time=MONDAY.isoformat(), data={
        "belief": "b", "supports": True, "scope": "agent"}) for n in range(9)]  # fmt: skip
    conn = stored(raws)
    assert the(conn, "b", at=MONDAY + timedelta(days=30))["status"] == "active"
    month_later = MONDAY + timedelta(days=31)
    assert the(conn, "b", at=month_later)["status"] == "candidate"
    data = {"belief": "b", "slot": "w5", "verdict": "holds", "confidence": 0.7, "scope": "agent"}
    review = event("belief.reviewed", 99, agent="clerk", time=month_later.isoformat(), data=data)
    assert the(stored([*raws, review]), "b", at=month_later)["status"] == "active"


# --- notices and constraints -----------------------------------------------------------------------------------------


def died(day: int, context: str, run: str = "") -> dict[str, Any]:
    at = MONDAY + timedelta(days=day)
    return used(at, run or f"died-{day}-{context}", bad=1, context=context, fatal="declined~00aa11bb")


def standing(conn: Connection, day: int, **rules: Any) -> tuple[str, int]:
    at = MONDAY + timedelta(days=day, hours=12)
    (notice,) = beliefs.notices_of(conn, "default", "agent/clerk", now=at, rules=BeliefRules(**rules))
    return notice["standing"], notice["contexts_left"]


def test_a_pattern_becomes_a_constraint_after_three_distinct_contexts(stored: Read) -> None:
    conn = stored([died(0, "c1", "r1"), died(1, "c1", "r2"), died(2, "c2"), died(3, "c3")])
    assert [standing(conn, day) for day in range(4)] == [("notice", 1), ("notice", 1), ("notice", 2), ("constraint", 3)]
    before, after = (the(conn, at=MONDAY + timedelta(days=day, hours=12)) for day in (2, 3))
    assert (before["status"], after["status"]) == ("candidate", "constraint")
    assert after["statement"] == (
        "unless confirmed first, do not use pay: it failed for good in 3 different contexts (declined)"
    )
    assert standing(conn, 3, constraint_contexts=4) == ("notice", 3)


def test_counter_evidence_softens_a_constraint_and_a_relapse_brings_it_back(stored: Read) -> None:
    raws = [died(0, "c1"), died(1, "c2"), died(2, "c3")]
    worked = [used(MONDAY + timedelta(days=3, hours=n), f"ok{n}", 1, context="c2") for n in range(2)]
    elsewhere = [used(MONDAY + timedelta(days=3, hours=n), f"else{n}", 1, context="c9") for n in range(6)]
    mixed = [used(MONDAY + timedelta(days=3, hours=n), f"mixed{n}", 4, 1, context="c2") for n in range(4)]
    assert standing(stored([*raws, *elsewhere, *mixed, worked[0]]), 4) == ("constraint", 3)
    softened = [*raws, *worked]
    Random(1).shuffle(softened)
    assert standing(stored(softened), 4) == ("notice", 2)
    assert standing(stored([*softened, died(5, "c2")]), 6) == ("constraint", 3)


def test_goals_that_never_come_back_soften_a_constraint_by_work_in_other_contexts(stored: Read) -> None:
    """Since it was last met, not before: an outage in new contexts is no recovery."""
    raws = [died(day, f"c{day}") for day in range(4)]
    good = [used(MONDAY + timedelta(days=5, hours=n), f"ok{n}", 1, context=f"other{n}") for n in range(8)]
    assert standing(stored([*raws, *good[:3]]), 6) == ("constraint", 3)
    assert standing(stored([*raws, *good]), 6) == ("notice", 0)
    assert standing(stored([*raws, *good, died(7, "c7")]), 8) == ("constraint", 5)


def test_a_policy_tells_once_what_call_step_and_run_failed_by(stored: Read) -> None:
    cause = "connectionerror host # is away"
    causes = {"call/1": ("pay", f"pay: {cause}"), "step/pay": ("", cause), "result": ("", f"error streak {cause}")}
    nodes = [
        {"node": node, "kind": node.partition("/")[0], "label": "fatal_failure", "tool": tool, "pattern": pattern}
        for node, (tool, pattern) in causes.items()
    ]
    other = {"node": "result", "kind": "result", "label": "fatal_failure", "pattern": "nobody # is at home"}
    raws = [
        event("experience.recorded", id=run, user="rosa", time=MONDAY.isoformat(),
              data={"run": run, "deriver_version": 2, "scope": "user", "counts": [], "nodes": told})
        for run, told in (("r1", nodes), ("r2", [other]))
    ]  # fmt: skip
    found = learned_of(stored(raws), "default", "user/rosa", now=MONDAY)
    assert [one.get("tool", "") for one in found.notices] == ["", "pay"]
    assert found.notices[0]["cause"] == "nobody # is at home"


def test_a_policy_tells_a_users_pattern_with_its_tool_however_often_it_was_met(stored: Read) -> None:
    """A user's scope has no belief about a tool that could tell the constraint."""
    node = {"node": "call/1", "kind": "call", "label": "fatal_failure", "tool": "pay", "pattern": "pay: away"}
    raws = [
        event("experience.recorded", id=f"r{n}", user="rosa", time=MONDAY.isoformat(), data={
            "run": f"r{n}", "deriver_version": 2, "scope": "user", "counts": [], "nodes": [node | {"context": f"c{n}"}],
        })
        for n in range(3)
    ]  # fmt: skip
    (notice,) = learned_of(stored(raws), "default", "user/rosa", now=MONDAY).notices
    assert (notice["tool"], notice["contexts"], notice["standing"]) == ("pay", 3, "constraint")
    agents = [used(MONDAY, f"a{n}", bad=1, context=f"c{n}", fatal="away~00aa11bb") for n in range(3)]
    assert learned_of(stored(agents), "default", "agent/clerk", now=MONDAY).notices == ()


def test_without_contexts_runs_stand_for_them(stored: Read) -> None:
    raws = [used(MONDAY + timedelta(days=day), f"r{day}", bad=1, fatal="declined~00aa11bb") for day in range(3)]
    assert standing(stored(raws), 3) == ("constraint", 3)
    worked = [used(MONDAY + timedelta(days=4, hours=n), f"ok{n}", 1) for n in range(2)]
    assert standing(stored([*raws, *worked]), 5) == ("notice", 2)
    early = [used(MONDAY - timedelta(days=1, hours=n), f"ok{n}", 1) for n in range(9)]
    assert standing(stored([*raws, *early]), 5) == ("constraint", 3), "only what came later answers it"


# --- what is odd -----------------------------------------------------------------------------------------------------


def test_contradictory_evidence_meets_in_the_middle(stored: Read) -> None:
    raws = [event("belief.verified", n, user="u1", data={
        "belief": "b", "supports": n % 2 == 0, "source": f"s{n}", "scope": "user"}) for n in range(40)]  # fmt: skip
    belief = the(stored(raws), "b", at=MONDAY, scope="user/u1")
    assert (belief["confidence"], belief["status"]) == (0.5, "candidate")


def test_nothing_from_the_future_raises_a_belief(stored: Read) -> None:
    """A publisher whose clock is wrong: its proposal, its evidence and its reviews wait until their time comes."""
    future = MONDAY + timedelta(days=400)
    data = {"belief": "b", "kind": "learning", "confidence": 0.9}
    raws = [event("belief.proposed", 1, agent="clerk", time=future.isoformat(), data=data)]
    raws += [event("belief.verified", n, agent="clerk", time=future.isoformat(), data={
        "belief": "b", "supports": True, "scope": "agent"}) for n in range(2, 9)]  # fmt: skip
    conn = stored(raws)
    now = the(conn, "b", at=MONDAY)
    assert (now["confidence"], now["status"], now["supports"]) == (0.5, "candidate", 0)
    assert "last_verified" not in now
    assert the(conn, "b", at=future)["status"] == "active"
    taken_back = event("belief.retracted", 10, agent="clerk", belief="b", time=MONDAY.isoformat(), scope="agent")
    assert the(stored([*raws, taken_back]), "b", at=MONDAY)["status"] == "retired", "a wrong clock cannot hold it up"


def test_words_from_the_future_replace_none_of_today(stored: Read) -> None:
    """A proposal and a retraction by a wrong clock, in whichever order they come, wait until their time comes."""
    future = MONDAY + timedelta(days=400)
    data = {"belief": "b", "kind": "learning", "confidence": 0.9}
    raws = [
        event("belief.proposed", 1, agent="clerk", time=MONDAY.isoformat(), data={
            **data, "statement": "today's", "because": ["e-7"]}),
        event("belief.proposed", 2, agent="clerk", time=future.isoformat(), data={**data, "statement": "tomorrow's"}),
        event("belief.proposed", 3, agent="clerk", time=(future + timedelta(1)).isoformat(), data={
            **data, "statement": "later"}),
        event("belief.retracted", 4, agent="clerk", belief="b", scope="agent",
              time=(MONDAY - timedelta(1)).isoformat(), reason="was wrong"),
        event("belief.retracted", 5, agent="clerk", belief="b", scope="agent",
              time=(future + timedelta(2)).isoformat(), reason="will be wrong"),
    ]  # fmt: skip
    for order in (raws, raws[::-1]):
        conn = stored(order)
        at = {
            day: the(conn, "b", at=day)
            for day in (MONDAY, future, future + timedelta(1), future + timedelta(2), MONDAY - timedelta(hours=1))
        }
        words = [belief["statement"] for belief in at.values()]
        assert words == ["today's", "tomorrow's", "later", "later", "later"]
        assert [belief["status"] for belief in at.values()] == ["active", "active", "active", "retired", "retired"]
        assert at[MONDAY]["confidence"] == 0.9
        found = beliefs.belief_document(conn, "default", "agent/clerk", "b", now=MONDAY)
        assert found is not None and (found["because"], found["proposed_by"]) == (["e-7"], "e1")


def test_a_belief_that_nothing_is_left_of_is_invalid_and_says_why(stored: Read) -> None:
    raws = [used(MONDAY, "r1", 5), used(MONDAY, "r2", 5)]
    taken_back = [
        event("experience.recorded", id=f"gone-{run}", agent="clerk", time=MONDAY.isoformat(), data={
            "run": run, "deriver_version": LAST_WORD, "scope": "agent"})
        for run in ("r1", "r2")
    ]  # fmt: skip
    half, none = stored([*raws, taken_back[0]]), stored([*taken_back, *raws])
    assert (the(half, at=MONDAY)["supports"], the(half, at=MONDAY)["status"]) == (5, "active")
    belief = the(none, at=MONDAY)
    assert (belief["status"], belief["retired_because"], belief["sources"]) == ("retired", "no evidence is left", 0)
    assert beliefs.evidence_of(none, "default", "agent/clerk", "tool/pay") == []
    assert [one["run"] for one in beliefs.experiences_of(half, "default", "agent/clerk")] == ["r2"]
    assert beliefs.experiences_of(none, "default", "agent/clerk", limit=5) == []
    assert list(beliefs.experiences_named(half, "default", "agent/clerk", ["r1", "r2"])) == ["r2"]
    assert beliefs.experience_of(none, "default", "agent/clerk", "r1") is None


def test_evidence_of_a_run_that_never_started_counts_and_names_it(stored: Read) -> None:
    """C14: the orphan is visible."""
    document = beliefs.belief_document(stored([used(MONDAY, "nobody", 1)]), "default", "agent/clerk", "tool/pay",
                                       now=MONDAY)  # fmt: skip
    assert document is not None
    assert [(one["run"], one["event_id"]) for one in document["evidence"]] == [("nobody", "e-nobody")]


def test_a_belief_is_found_by_any_form_of_its_name(stored: Read) -> None:
    """C29, C31."""
    long = "é" * 3_000
    conn = stored([event("belief.proposed", n, agent="clerk", belief=name, kind="learning")
                   for n, name in enumerate(("cafe\u0301", long))])  # fmt: skip
    for asked, is_called in (("caf\u00e9", "café"), ("\uff43\uff41\uff46\u00e9", "café"), ("e\u0301" * 3_000, long)):
        document = beliefs.belief_document(conn, "default", "agent/clerk", asked, now=MONDAY)
        assert document is not None
        assert document["belief"] == is_called


def test_the_chain_names_what_a_proposal_stood_on(stored: Read) -> None:
    data = {
        "belief": "b", "kind": "learning", "because": ["e-1", "e-2"], "elsewhere": [{"run": "r9", "supports": 3}],
        "limits": {"repository": "ours"},
    }  # fmt: skip
    conn = stored([event("belief.proposed", 7, agent="clerk", data=data)])
    document = beliefs.belief_document(conn, "default", "agent/clerk", "b", now=MONDAY)
    assert document is not None
    assert (document["because"], document["elsewhere"], document["proposed_by"], document["limits"]) == (
        ["e-1", "e-2"], [{"run": "r9", "supports": 3}], "e7", {"repository": "ours"}
    )  # fmt: skip
    assert (document["supports"], document["status"]) == (0, "candidate"), "evidence of elsewhere is not counted"


def test_a_zero_half_life_knows_today_alone(stored: Read) -> None:
    conn = stored([used(MONDAY, "r1", 9)])
    rules: dict[str, Any] = {"half_life_days": {"tool_reliability": 0.0}}
    assert the(conn, at=MONDAY, **rules)["confidence"] == pytest.approx(11 / 13)
    assert the(conn, at=MONDAY + timedelta(days=1), **rules)["confidence"] == 0.5


def test_a_retraction_counts_when_its_day_has_come(stored: Read) -> None:
    """A wrong clock takes back nothing yet, and the past is told as it was."""
    proposed = event(
        "belief.proposed", id="p", agent="clerk", time="2026-03-01T10:00:00Z",
        data={"belief": "b", "kind": "learning", "statement": "look twice", "confidence": 0.9, "scope": "agent"},
    )  # fmt: skip
    taken = event(
        "belief.retracted", id="r", agent="clerk", time="2026-03-05T10:00:00Z", data={"belief": "b", "scope": "agent"}
    )
    conn = stored([proposed, taken])
    told = {day: the(conn, "b", at=datetime(2026, 3, day, 12, tzinfo=UTC))["status"] for day in (4, 5, 6)}
    assert told == {4: "active", 5: "retired", 6: "retired"}


def test_no_secret_is_shown_of_what_was_said(stored: Read) -> None:
    """C21."""
    secret = "sk-xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"
    data = {
        "belief": "b", "kind": "learning", "statement": f"use api_key: {secret}", "limits": {"api_key": secret},
        "elsewhere": [{"detail": f"token {secret}"}], "scope": "agent",
    }  # fmt: skip
    told = event("belief.verified", id="v", agent="clerk", data={"belief": "b", "supports": True, "scope": "agent",
                 "detail": f"password: {secret}"}, time="2026-03-02T10:00:00Z")  # fmt: skip
    conn = stored([event("belief.proposed", id="p", agent="clerk", data=data, time="2026-03-01T10:00:00Z"), told])
    document = beliefs.belief_document(conn, "default", "agent/clerk", "b", now=MONDAY + timedelta(days=1))
    assert document is not None and secret in str(document)
    shown = beliefs.without_secrets(document)
    assert "AAAA1111" not in str(shown) and "EEEE" not in str(shown)
    assert shown["statement"].startswith("use api_key: ") and shown["evidence"][0]["event_id"] == "v"


def test_many_documents_are_those_of_each_alone(stored: Read) -> None:
    conn = stored(
        [used(MONDAY + timedelta(hours=n), f"r{n}", bad=1, context=f"c{n}", fatal="timeout") for n in range(3)]
    )
    at = MONDAY + timedelta(days=1)
    (pay,) = beliefs.belief_documents(conn, "default", "agent/clerk", ["nothing", "tool/pay"], now=at)
    assert pay["status"] == "constraint"
    assert pay == beliefs.belief_document(conn, "default", "agent/clerk", "tool/pay", now=at)
    assert beliefs.belief_document(conn, "default", "agent/clerk", "nothing", now=at) is None
