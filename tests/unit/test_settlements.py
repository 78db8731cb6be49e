"""Settlements: the first of a version wins, versions supersede, a session's state never goes back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.settlements import MAX_EVIDENCE_RUNS, SETTLEMENTS_PROJECTION
from tests.unit.fold_runner import Folded, event, fold


def settled(n: int, run: str = "r1", version: int = 1, goal: str = "", **more: Any) -> dict[str, Any]:
    more.setdefault("session", "s1")
    return event(
        "settlement.recorded", n, task="t1", run=run, version=version, session_state={"goal": goal or run}, **more
    )


def degraded(n: int, run: str = "r1", version: int = 1, **more: Any) -> dict[str, Any]:
    return event(
        "settlement.degraded",
        n,
        task="t1",
        run=run,
        session="s1",
        version=version,
        degraded="no_model",
        evidence=[f"{run}: edited a.py"],
        **more,
    )


def folded(*raws: dict[str, Any]) -> Folded:
    return fold(SETTLEMENTS_PROJECTION, raws)


def goal(found: Folded) -> str | None:
    state = found.one("sessions")["state"]
    return state and state["goal"]


def test_a_settlement_keeps_what_the_run_left() -> None:
    row = folded(
        settled(
            1, reason="interrupt", interrupted=True, learnings=["x"], reflections=["y"], memories=[{"content": "z"}]
        )
    ).one("settlements")
    assert (row["reason"], row["interrupted"], row["degraded"], row["by"]) == ("interrupt", True, False, "agent")
    assert (row["learnings"], row["reflections"], row["memories"]) == (["x"], ["y"], [{"content": "z"}])
    assert row["session_state"]["goal"] == "r1"


def test_the_first_settlement_of_a_version_wins() -> None:
    """C5, C8, C15: one settlement, whatever comes again."""
    found = folded(settled(1, goal="first"), settled(2, goal="second"), degraded(3))
    assert (found.one("settlements")["session_state"]["goal"], goal(found)) == ("first", "first")
    assert found.one("settled_runs")["repeats"] == 2


def test_a_higher_version_supersedes_and_the_lower_one_stays() -> None:
    """C45."""
    found = folded(settled(1, goal="old"), settled(2, version=2, goal="new"))
    rows = {row["version"]: (row["status"], row["superseded_by"]) for row in found.table("settlements")}
    assert rows == {1: ("superseded", 2), 2: ("active", 0)}
    assert goal(found) == "new"


def test_a_lower_version_that_comes_later_is_history_at_once() -> None:
    found = folded(settled(1, version=2, goal="new"), settled(2, version=1, goal="old"))
    assert found.one("settlements", version=1)["superseded_by"] == 2
    assert goal(found) == "new"


def test_a_degraded_settlement_is_evidence_beside_an_older_state() -> None:
    found = folded(settled(1), degraded(2, run="r2"))
    session = found.one("sessions")
    assert (goal(found), session["run"], session["stale"]) == ("r1", "r1", True)
    assert [item["evidence"] for item in session["evidence_since"]] == [["r2: edited a.py"]]
    assert found.one("settlements", run="r2")["session_state"] is None


def test_a_full_settlement_later_clears_the_evidence() -> None:
    session = folded(settled(1), degraded(2, run="r2"), settled(3, run="r3")).one("sessions")
    assert (session["run"], session["stale"], session["evidence_since"]) == ("r3", False, [])


def test_settling_a_degraded_run_in_full_clears_its_evidence() -> None:
    """C45."""
    session = folded(settled(1), degraded(2, run="r2"), settled(3, run="r2", version=2)).one("sessions")
    assert (session["run"], session["version"], session["stale"]) == ("r2", 2, False)


def test_settling_an_older_run_again_never_takes_the_session_back() -> None:
    found = folded(settled(1), settled(2, run="r2"), settled(3, run="r1", version=2, goal="again"))
    assert goal(found) == "r2"


def test_a_session_whose_runs_all_degraded_has_evidence_and_no_state() -> None:
    session = folded(degraded(1)).one("sessions")
    assert (session["state"], session["stale"]) == (None, True)


def test_evidence_beside_the_state_is_bounded() -> None:
    session = folded(*(degraded(n, run=f"r{n}") for n in range(30))).one("sessions")
    assert [item["run"] for item in session["evidence_since"]] == [f"r{n}" for n in range(30 - MAX_EVIDENCE_RUNS, 30)]


def test_attempts_add_up_before_a_settlement_and_after() -> None:
    common = {"task": "t1", "run": "r1", "session": "s1", "tokens_in": 5}
    tries = [event("settlement.attempted", n, attempt=n, error=f"bad {n}", **common) for n in (1, 2)]
    row = folded(*tries, settled(3)).one("settled_runs")
    assert (row["attempts"], row["tokens_in"], row["errors"]) == (2, 10, ["bad 1", "bad 2"])


def test_a_run_without_session_settles_under_its_task() -> None:
    found = folded(settled(1, session=""))
    assert found.table("sessions", key="task/t1")[0]["state"]["goal"] == "r1"


ACTS = st.tuples(st.booleans(), st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 3))


@settings(max_examples=100, deadline=None)
@given(st.lists(ACTS, max_size=20), st.integers(1, 20))
def test_any_batch_split_gives_the_same_rows_and_one_active_version_a_run(acts: list[Any], batch: int) -> None:
    raws = [(settled if full else degraded)(n, run, version) for n, (full, run, version) in enumerate(acts)]
    found = fold(SETTLEMENTS_PROJECTION, raws, batch=batch)
    assert found.dump() == fold(SETTLEMENTS_PROJECTION, raws, batch=1).dump()
    for run in {row["run"] for row in found.table("settlements")}:
        rows = [row for row in found.table("settlements") if row["run"] == run]
        active = [row["version"] for row in rows if row["status"] == "active"]
        assert active == [max(row["version"] for row in rows)]


def test_what_settling_cost_is_counted_by_the_day_of_utc() -> None:
    def tried(n: int, time: str, **more: Any) -> dict[str, Any]:
        return event("settlement.attempted", n, task="t1", run="r1", session="s1", attempt=n, **more) | {"time": time}

    found = folded(
        tried(1, "2026-03-01T23:30:00Z", tokens_in=100, tokens_out=20),
        tried(2, "2026-03-02T01:00:00+02:00", tokens_in=10),
        tried(3, "2026-03-02T00:00:00Z", tokens_in=1),
        tried(4, "2026-03-02T00:00:00Z", by="agent", tokens_in=999),
    )
    assert [(row["day"], row["calls"], row["tokens"]) for row in found.table("model_days")] == [
        ("2026-03-01", 2, 130), ("2026-03-02", 1, 1),
    ]  # fmt: skip


def test_what_other_models_of_the_backend_cost_is_counted_with_it() -> None:
    """So that no org spends its budget twice, whichever process asked."""
    spent = {"calls": 3, "tokens_in": 300, "tokens_out": 60}
    reviewed = {"belief": "b", "slot": "2026-03-01T00:00:00Z", "verdict": "holds", "confidence": 0.6, "tokens_in": 7}
    found = folded(
        event("card.summarized", 1, task="t1", run="r1", card="c1", summary="", **spent),
        event("card.summarized", 2, task="t1", run="r1", card="c2", summary="told by nobody's model"),
        event("belief.reviewed", 3, agent="a", scope="agent", **reviewed),
        event("belief.reviewed", 4, agent="a", scope="agent", **{**reviewed, "tokens_in": 0}),
    )
    assert [(row["calls"], row["tokens"]) for row in found.table("model_days")] in (
        [(3, 360), (1, 7)],
        [(1, 7), (3, 360)],
    )


def test_the_first_end_of_a_run_counts_and_lost_gives_way() -> None:
    """C15."""
    ends = enumerate(("lost", "interrupt", "end_turn"), 1)
    found = folded(*(event("run.terminated", n, task="t1", run="r1", reason=reason) for n, reason in ends))
    assert found.one("ended_runs")["reason"] == "interrupt"
