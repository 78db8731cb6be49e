"""Reads of the four read models, on rows in a real SQLite database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, create_engine

from projections.projection import Projection
from projections.queries import beliefs, cards, settlements, tasks
from projections.registry import PROJECTIONS
from tests.unit.fold_runner import event, fold
from tests.unit.test_golden_histories import HISTORIES

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Read = Callable[[str, list[dict[str, Any]]], Connection]


@pytest.fixture
def stored() -> Iterator[Read]:
    """Fold raw events through a projection and store its rows; gives a connection to read them on."""
    opened: list[Any] = []

    def store(name: str, raws: list[dict[str, Any]]) -> Connection:
        projection: Projection = PROJECTIONS[name]
        engine = create_engine("sqlite://")
        opened.append(engine)
        projection.tables[0].metadata.create_all(engine)
        connection = engine.connect()
        opened.append(connection)
        fold(projection, raws).store(connection)
        return connection

    yield store
    for resource in reversed(opened):
        getattr(resource, "dispose", None) and resource.dispose()
        getattr(resource, "close", None) and resource.close()


def history(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HISTORIES / f"{name}.jsonl").read_bytes().splitlines()]


def crashed(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """A run that is killed while a call with a side effect is under way."""
    common = {"task": "t1", "run": "r1"}
    return [
        event("run.started", 0, goal="pay", model="tiny", system_prompt={"digest": "p1"}, **common),
        event("plan.updated", 1, steps=[{"id": "a"}, {"id": "b"}], **common),
        event("step.started", 2, step="a", **common),
        event("step.completed", 3, step="a", **common),
        event("tool.called", 4, call_id="c7", name="pay", idempotency_key="k7", side_effect=True, **common),
        *more,
    ]


# --- tasks -----------------------------------------------------------------------------------------------------------


def test_an_unknown_task_is_none(stored: Read) -> None:
    conn = stored("task_state", crashed())
    assert tasks.task_document(conn, "default", "nobody", now=NOW) is None
    assert tasks.resume_document(conn, "default", "nobody", now=NOW) is None
    assert tasks.resume_document(conn, "other-org", "t1", now=NOW) is None


def test_a_resume_tells_what_is_done_what_is_open_and_what_to_check_first(stored: Read) -> None:
    """C20: the same when asked twice."""
    conn = stored("task_state", crashed())
    first, second = (tasks.resume_document(conn, "default", "t1", now=NOW) for _ in range(2))
    assert first == second
    assert first is not None
    assert (first["cursor"], [step["step"] for step in first["finished_steps"]], first["next_attempt"]) == (
        "b",
        ["a"],
        2,
    )
    call = first["in_flight"][0]
    assert (call["call_id"], call["idempotency_key"], call["status"]) == ("c7", "k7", tasks.CHECK_FIRST)


def test_a_call_of_a_run_that_is_over_is_interrupted(stored: Read) -> None:
    """C20."""
    document = tasks.task_document(stored("task_state", crashed()), "default", "t1", now=NOW)
    assert document is not None
    assert document["calls_in_flight"][0]["status"] == "in_flight"
    over = event("run.terminated", 9, task="t1", run="r1", reason="lost")
    document = tasks.task_document(stored("task_state", crashed(over)), "default", "t1", now=NOW)
    assert document is not None
    assert document["calls_in_flight"][0]["status"] == "interrupted"


@pytest.mark.parametrize(
    "answer",
    [
        [{"type": "tool.returned", "run": "r1", "call_id": "c7", "late": True}],
        [{"type": "tool.returned", "run": "r2", "call_id": "c7"}],
        [
            {"type": "tool.called", "run": "r2", "call_id": "c1", "name": "pay", "idempotency_key": "k7"},
            {"type": "tool.returned", "run": "r2", "call_id": "c1"},
        ],
    ],
    ids=["late result", "result reported by the next run", "repeated under the same key"],
)
def test_an_answered_call_needs_no_checking_any_more(stored: Read, answer: list[dict[str, Any]]) -> None:
    """C20."""
    started = event("run.started", 5, task="t1", run="r2", attempt=2)
    more = [event(part["type"], 6 + n, task="t1", **{k: v for k, v in part.items() if k != "type"})
            for n, part in enumerate(answer)]  # fmt: skip
    document = tasks.resume_document(stored("task_state", crashed(started, *more)), "default", "t1", now=NOW)
    assert document is not None
    assert document["in_flight"] == []


def test_a_changed_configuration_is_reported(stored: Read) -> None:
    again = event("run.started", 5, task="t1", run="r2", attempt=2, model="tiny", system_prompt={"digest": "p2"})
    conn = stored("task_state", crashed(again))
    mine = {"model": "large", "system_prompt": "p2"}
    document = tasks.resume_document(conn, "default", "t1", now=NOW, config=mine)
    assert document is not None
    assert document["config"]["changed_in_last_run"] == [{"what": "system_prompt", "before": "p1", "after": "p2"}]
    assert document["config"]["changed_since"] == [{"what": "model", "before": "tiny", "after": "large"}]


def test_notes_grow_stale_at_read_time_and_never_in_the_fold(stored: Read) -> None:
    note = event("note.written", 5, task="t1", run="r1", key="n", content="x", ttl_s=60, time="2026-03-01T10:00:00Z")
    conn = stored("task_state", crashed(note))
    written = datetime(2026, 3, 1, 10, tzinfo=UTC)
    seen = []
    for after in (-5, 60, 61):
        document = tasks.resume_document(conn, "default", "t1", now=written + timedelta(seconds=after))
        assert document is not None
        seen.append(document["notes"][0]["stale"])
    assert seen == [False, False, True]


def test_durations_are_unknown_where_clocks_disagree_or_an_end_is_missing(stored: Read) -> None:
    """C25."""
    times = [("a", "10:00:00.500", "10:00:00.200"), ("b", "10:00:00", "10:00:02.5"), ("c", "10:00:00", None)]
    raws = []
    for n, (step, start, end) in enumerate(times):
        raws.append(event("step.started", 2 * n, task="t", run="r", step=step, time=f"2026-03-01T{start}Z"))
        if end:
            raws.append(event("step.completed", 2 * n + 1, task="t", run="r", step=step, time=f"2026-03-01T{end}Z"))
    document = tasks.task_document(stored("task_state", raws), "default", "t", now=NOW)
    assert document is not None
    assert {step["step"]: step["duration_s"] for step in document["unplanned_steps"]} == {
        "a": None,
        "b": 2.5,
        "c": None,
    }
    assert document["unplanned_steps"][0]["started"] == "2026-03-01T10:00:00.500Z"


def test_a_checkpoint_keeps_its_order_of_keys(stored: Read) -> None:
    conn = stored("task_state", history("killed_and_resumed"))
    document = tasks.resume_document(conn, "default", "golden", now=NOW)
    assert document is not None
    assert orjson.dumps(document["checkpoint"]["data"]) == b'{"z":[1,2],"a":"byte for byte"}'


def test_documents_of_a_whole_history_are_json_and_complete(stored: Read) -> None:
    conn = stored("task_state", history("killed_and_resumed"))
    document = tasks.task_document(conn, "default", "golden", now=NOW)
    assert document is not None
    assert orjson.loads(orjson.dumps(document))["status"] == "completed"
    assert (document["cursor"], len(document["runs"]), len(document["late"])) == (None, 2, 3)
    assert document["note_conflicts"][0]["content"] == ["book/two.txt"]
    run = document["runs"][0]
    assert (run["run"], run["reason"], run["interrupted"]) == ("r1", "lost", True)


def test_long_names_are_whole_in_documents(stored: Read) -> None:
    """C29."""
    name = "é" * 200
    raws = [event("step.started", 1, task="t", run=name, step=name), event("run.started", 2, task="t", run=name)]
    document = tasks.task_document(stored("task_state", raws), "default", "t", now=NOW)
    assert document is not None
    assert document["unplanned_steps"][0]["step"] == document["runs"][0]["run"] == name


def test_tasks_are_listed_in_pages_by_status_and_user(stored: Read) -> None:
    raws = [event("run.started", n, task=f"t{n}", run=f"r{n}", user=f"u{n % 2}") for n in range(5)]
    conn = stored("task_state", raws)
    page = tasks.list_tasks(conn, "default", limit=2)
    assert [task["task"] for task in page] == ["t0", "t1"]
    rest = tasks.list_tasks(conn, "default", after="t1", user="u0", status="in_progress")
    assert [task["task"] for task in rest] == ["t2", "t4"]
    assert tasks.list_tasks(conn, "other") == []


# --- cards -----------------------------------------------------------------------------------------------------------


def test_cards_come_by_value_and_lead_back_to_their_originals(stored: Read) -> None:
    conn = stored("memory_cards", history("cards_in_two_languages"))
    active = cards.cards_of_task(conn, "default", "golden-cards")
    assert [card["value"] for card in active] == sorted((card["value"] for card in active), reverse=True)
    assert len(cards.cards_of_task(conn, "default", "golden-cards", status="")) == len(active) + 1
    offer = cards.cards_of_task(conn, "default", "golden-cards", status="superseded")[0]
    document = cards.card_document(conn, "default", offer["card"])
    assert document is not None
    assert document["original"] == {
        "event_id": "cards_in_two_languages-4",
        "partition": 0,
        "position": "1-4",
        "chars": document["original"]["chars"],
    }
    assert [use["name"] for use in document["used_by"]] == ["book", "which flight?"]
    assert cards.card_document(conn, "default", "nobody") is None
    assert cards.card_document(conn, "other", offer["card"]) is None
    assert orjson.dumps(document)


# --- settlements -----------------------------------------------------------------------------------------------------


def test_a_settlement_is_read_with_its_history(stored: Read) -> None:
    """C45."""
    conn = stored("settlements", history("settled_twice_and_degraded"))
    document = settlements.settlement_of_run(conn, "default", "r1")
    assert document is not None
    assert (document["version"], document["session_state"]["goal"]) == (2, "count words, corrected")
    assert [old["session_state"]["goal"] for old in document["history"]] == ["count words"]
    assert document["attempted"] == {
        "attempts": 1,
        "tokens_in": 900,
        "tokens_out": 40,
        "errors": ["no JSON in the answer"],
        "repeats": 1,
    }
    assert settlements.settlement_of_run(conn, "default", "nobody") is None
    assert settlements.settled_by_outcome(conn).get("") == 1


def test_a_session_is_stale_while_a_run_since_is_degraded(stored: Read) -> None:
    conn = stored("settlements", history("settled_twice_and_degraded"))
    document = settlements.session_document(conn, "default", "s1")
    assert document is not None
    assert (document["run"], document["stale"]) == ("r1", True)
    assert document["evidence_since"][0]["evidence"] == ["c2: outcome unknown"]
    assert settlements.session_document(conn, "default", "nobody") is None
    assert settlements.task_session_document(conn, "default", "golden") is None


def test_users_who_call_their_sessions_alike_have_one_each(stored: Read) -> None:
    """C16, DESIGN 1, 7: no read crosses a user."""

    def ended(n: int, run: str, user: str, **data: Any) -> list[dict[str, Any]]:
        who = {"run": run, "task": f"t-{run}", "session": "monday", "user": user, "agent": "clerk"}
        settled = {"type": "settlement.recorded", "data": {"version": 1, "reason": "end_turn", "by": "agent", **data}}
        if "degraded" in data:
            settled = {"type": "settlement.degraded", "data": {"version": 1, "reason": "end_turn", **data}}
        end = {"type": "run.terminated", "data": {"reason": "end_turn"}}
        return [
            {**who, "id": f"{run}-{kind['type']}", "time": f"2026-03-01T10:0{n}:00Z", **kind}
            for kind in (end, settled)[: 1 if data.get("open") else 2]
        ]

    goals = {name: {"session_state": {"goal": name, "current_phase": "done"}} for name in ("of rosa", "of tina")}
    conn = stored(
        "settlements",
        [
            *ended(0, "r1", "rosa", **goals["of rosa"]),
            *ended(1, "r2", "tina", **goals["of tina"]),
            *ended(2, "r3", "rosa", degraded="no_model", evidence=["error: of rosa"]),
            *ended(3, "r4", "rosa", open=True),
        ],
    )
    rosa, tina, pia = (
        settlements.session_document(conn, "default", "monday", user) for user in ("rosa", "tina", "pia")
    )
    assert rosa is not None and tina is not None and pia is None
    assert (rosa["state"]["goal"], rosa["run"], rosa["reason"]) == ("of rosa", "r1", "end_turn")
    assert [(one["run"], one["evidence"]) for one in rosa["evidence_since"]] == [("r3", ["error: of rosa"])]
    assert (rosa["stale"], rosa["settled_runs"], [one["run"] for one in rosa["settling"]]) == (True, 2, ["r4"])
    assert (tina["state"]["goal"], tina["stale"], tina["settled_runs"]) == ("of tina", False, 1)
    assert not tina["evidence_since"] and not tina["settling"]
    alone = settlements.session_document(conn, "default", "monday")
    assert alone is not None and alone["settled_runs"] == 3


# --- beliefs ---------------------------------------------------------------------------------------------------------


def test_beliefs_of_a_scope_at_a_moment(stored: Read) -> None:
    conn = stored("beliefs", history("beliefs_of_an_outage"))
    found = {belief["belief"]: belief for belief in beliefs.beliefs_of(conn, "default", "agent/counter", now=NOW)}
    search = found["tool/search"]
    assert (search["supports"], search["against"], search["statement"]) == (5, 2, "search worked 5 of 7 times")
    assert search["confidence"] == pytest.approx((2 + 5) / (4 + 7))
    assert beliefs.beliefs_of(conn, "default", "agent/somebody", now=NOW) == []
    long_ago = beliefs.beliefs_of(conn, "default", "agent/counter", now=datetime(2020, 1, 1, tzinfo=UTC))
    confidences = {belief["belief"]: belief["confidence"] for belief in long_ago}
    assert confidences == {"b1": 0.5, "tool/search": 0.5, "tool/book": 0.5}  # nothing had happened then


def test_a_belief_answers_why_down_to_its_events(stored: Read) -> None:
    conn = stored("beliefs", history("beliefs_of_an_outage"))
    document = beliefs.belief_document(conn, "default", "agent/counter", "tool/search", now=NOW)
    assert document is not None
    assert [item["event_id"] for item in document["evidence"]] == [f"beliefs_of_an_outage-{n}" for n in (3, 2, 0)]
    assert beliefs.belief_document(conn, "default", "agent/counter", "nothing", now=NOW) is None


def test_notices_stand_apart_and_name_the_runs(stored: Read) -> None:
    conn = stored("beliefs", history("beliefs_of_an_outage"))
    (mine,) = beliefs.notices_of(conn, "default", "user/u1")
    assert (mine["tool"], mine["cause"], mine["runs"], mine["contexts"]) == ("search", "service down", ["r3"], 1)
    experience = beliefs.experience_of(conn, "default", "user/u1", "r3")
    assert experience is not None
    assert experience["sheet"] == {"event_type": "lookup"}
    assert beliefs.experience_of(conn, "default", "user/u1", "r1") is None


def test_the_same_fatal_pattern_in_three_runs_is_a_constraint(stored: Read) -> None:
    counts = [{"tool": "rm", "label": "fatal_failure", "count": 1}]
    raws = [event("experience.recorded", n, agent="a", data={
        "run": f"r{n}", "deriver_version": 1, "scope": "agent", "counts": counts}) for n in range(3)]  # fmt: skip
    (belief,) = beliefs.beliefs_of(stored("beliefs", raws), "default", "agent/a", now=NOW)
    assert (belief["status"], belief["failures_in_a_row"]) == ("constraint", 3)
