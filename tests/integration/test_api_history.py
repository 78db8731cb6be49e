"""Looking back over HTTP and on the command line: the state at any entry of the timeline, checkpoints, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from events.event import Position
from events.keys import partition_of
from tests.instance import Instance, running_instance, until

DATA = {"z": [1, 2.5, "é\u2028"], "a": {"y": None}, "big": "x" * 1000}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("history") / "data") as running:
        yield running


def live_through(instance: Instance, task: str) -> list[dict[str, Any]]:
    """A task with a plan, a call whose result is stamped before it (C37), a step that ends before it starts (C25)."""
    told: list[tuple[str, str, dict[str, Any]]] = [
        ("10:00:00", "run.started", {"goal": "find the\n key"}),
        ("10:00:01", "plan.updated", {"steps": [{"id": "look"}, {"id": "open"}]}),
        ("10:00:02.500", "step.started", {"step": "look"}),
        ("10:01:48.482", "tool.called", {"call_id": "c1", "name": "search", "arguments": {"what": "key"}}),
        ("10:01:48.441", "tool.returned", {"call_id": "c1", "result": {"place": "drawer"}}),
        ("10:00:02.200", "step.completed", {"step": "look", "summary": "in the drawer"}),
        ("10:02:00", "message.added", {"role": "assistant", "content": "Found it. " * 100}),
        ("10:02:01", "checkpoint.saved", {"data": DATA, "checkpoint": "k1", "data_version": "3", "milestone": True}),
        ("10:02:02", "checkpoint.saved", {"data": {"n": 2}}),
        ("10:02:03", "step.rated", {"stars": 5}),
        ("10:02:04", "run.terminated", {"reason": "interrupt"}),
        ("10:02:05", "step.started", {"step": "open"}),
    ]
    events = [
        instance.event(f"{task}-r", type_, data, task=task, time=f"2026-03-01T{clock}Z") for clock, type_, data in told
    ]
    instance.stored(*events)
    instance.stored(events[3])
    return events


def timeline(instance: Instance, task: str, **params: Any) -> list[dict[str, Any]]:
    items, cursor = list[dict[str, Any]](), None
    while True:
        given = {**params} | ({"cursor": cursor} if cursor else {})
        answer = instance.http.get(f"/v1/tasks/{task}/timeline", params=given)
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return items


def at(instance: Instance, task: str, moment: str, **options: Any) -> Any:
    answer = instance.http.get(f"/v1/tasks/{task}", params={"at": moment}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def without_reading(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("read", "at")}


def test_any_entry_of_the_timeline_leads_to_the_state_after_it(instance: Instance) -> None:
    """C25, C37: entries stand in the order of the log, whatever their times say."""
    task = instance.name("task")
    events = live_through(instance, task)
    until(lambda: instance.http.get(f"/v1/tasks/{task}").json()["late"])
    entries = timeline(instance, task, limit=5)
    assert [entry["id"] for entry in entries[:12]] == [event["id"] for event in events]
    assert [entry["id"] for entry in timeline(instance, task, limit=4, order="desc")] == [e["id"] for e in entries][
        ::-1
    ]
    effects = [entry["effect"] for entry in entries]
    assert effects[:6] == ["applied"] * 6
    assert effects[6:12] == ["none", "applied", "applied", "none", "applied", "late"]
    assert entries[0]["what"] == "attempt 1 starts find the key"
    assert entries[4]["what"] == 'c1 returns {"place":"drawer"}'
    assert len(entries[6]["what"]) == 160
    assert all(entry["run"] == f"{task}-r" and entry["time"] for entry in entries)
    states = [at(instance, task, entry["position"]) for entry in entries]
    assert [state["status"] for state in states][:3] == ["in_progress"] * 3
    assert [len(state["calls_in_flight"]) for state in states[:6]] == [0, 0, 0, 1, 0, 0]
    assert [state["cursor"] for state in states[1:6]] == ["look", "look", "look", "look", "open"]
    assert states[10]["status"] == "interrupted" and not states[10]["late"] and states[11]["late"]
    step = states[5]["plan"][0]
    assert (step["started"], step["ended"], step["duration_s"]) == (
        "2026-03-01T10:00:02.500Z", "2026-03-01T10:00:02.200Z", None,
    )  # fmt: skip
    assert [state["totals"]["events"] for state in states[:6]] == [1, 2, 3, 4, 5, 6]
    live = instance.http.get(f"/v1/tasks/{task}").json()
    assert orjson.dumps(without_reading(states[-1])) == orjson.dumps(without_reading(live))
    assert at(instance, task, events[3]["id"]) == states[3]


def test_a_publish_answers_with_a_moment(instance: Instance) -> None:
    task = instance.name("task")
    first = instance.stored(instance.event(f"{task}-r", "step.started", {"step": "s1"}, task=task))
    instance.stored(instance.event(f"{task}-r", "step.completed", {"step": "s1"}, task=task))
    assert at(instance, task, first)["totals"]["steps_done"] == 0
    assert at(instance, task, first)["read"]["incomplete"] is False


def test_sub_agents_are_told_as_they_are_now(instance: Instance) -> None:
    task, child = instance.name("task"), instance.name("child")
    first = instance.stored(instance.event(f"{task}-r", "run.started", {"goal": "g"}, task=task))
    instance.stored(
        instance.event(f"{child}-r", "run.started", {"goal": "c", "parent_run": f"{task}-r"}, task=child),
        instance.event(f"{task}-r", "step.started", {"step": "s"}, task=task),
    )
    until(lambda: instance.http.get(f"/v1/tasks/{task}").json()["children"])
    assert [one["task"] for one in at(instance, task, first)["children"]] == [child]


def refused(instance: Instance, task: str, moment: str, **params: Any) -> tuple[int, str]:
    answer = instance.http.get(f"/v1/tasks/{task}", params={"at": moment, **params})
    return answer.status_code, answer.json()["code"]


def test_moments_that_are_none_are_refused(instance: Instance) -> None:
    task, other = instance.name("task"), instance.name("other")
    token = instance.stored(instance.event(f"{task}-r", "step.started", {"step": "s1"}, task=task))
    partitions = len(instance.http.get("/v1/log").json()["watermarks"])
    here = partition_of("default", f"task/{task}", partitions)
    last = Position.parse(instance.http.get("/v1/log").json()["watermarks"][str(here)])
    assert refused(instance, task, f"{last.epoch}-{last.n + 1}") == (422, "bad_position")
    assert refused(instance, task, f"{(here + 1) % partitions}.1-0") == (422, "bad_position")
    assert refused(instance, task, "0-0") == (422, "bad_position")
    for moment in ("nonsense", "1-", "1", "2026-03-01T10:00:00Z", "1-" + "9" * 40):
        assert refused(instance, task, moment) == (404, "no_event"), moment
    assert refused(instance, task, "00000000~0.1-0")[0] == 422
    assert refused(instance, task, str(last), after=token) == (422, "bad_parameter")
    assert refused(instance, other, "nonsense") == (404, "no_event")
    unknown = next(
        f"{other}-{n}" for n in range(999) if partition_of("default", f"task/{other}-{n}", partitions) == here
    )
    assert refused(instance, unknown, str(last)) == (404, "no_checkpoint")
    instance.stored(instance.event(f"{unknown}-r", "step.started", {"step": "s1"}, task=unknown))
    assert refused(instance, unknown, str(last)) == (404, "not_yet")
    assert instance.http.get(f"/v1/tasks/{other}/timeline").json()["code"] == "no_checkpoint"
    for cursor in ("!!", "WyJhc2MiLDEsMiwzXQ"):
        assert instance.http.get(f"/v1/tasks/{task}/timeline", params={"cursor": cursor}).status_code == 422


def test_another_organisation_sees_nothing(instance: Instance) -> None:
    """Invariant 7: neither a timeline, nor a moment, nor a checkpoint."""
    task = instance.name("task")
    events = live_through(instance, task)
    elsewhere = {"x-refold-org": "elsewhere"}
    for path, params in (
        ("", {"at": "1-0"}),
        ("", {"at": events[0]["id"]}),
        ("/timeline", {}),
        ("/checkpoints", {}),
        ("/checkpoints/k1", {}),
    ):
        answer = instance.http.get(f"/v1/tasks/{task}{path}", params=params, headers=elsewhere)
        assert answer.status_code in (404, 422), path
        assert "drawer" not in answer.text and "find the" not in answer.text


def test_checkpoints_come_back_byte_for_byte(instance: Instance) -> None:
    task = instance.name("task")
    live_through(instance, task)
    listed = instance.http.get(f"/v1/tasks/{task}/checkpoints").json()["items"]
    assert [one.get("checkpoint") for one in listed] == [None, "k1"]
    assert (listed[1]["data_version"], listed[1]["milestone"], "data" in listed[1]) == ("3", True, False)
    whole = instance.http.get(f"/v1/tasks/{task}/checkpoints/k1")
    assert orjson.dumps(DATA) in whole.content
    assert whole.json()["data_version"] == "3"
    by_position = instance.http.get(f"/v1/tasks/{task}/checkpoints/{listed[0]['position']}").json()
    assert by_position["data"] == {"n": 2}
    none = instance.http.get(f"/v1/tasks/{task}/checkpoints/never")
    assert (none.status_code, none.json()["code"]) == (404, "no_such_checkpoint")
    unknown = instance.http.get(f"/v1/tasks/{instance.name()}/checkpoints")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "no_checkpoint")


def test_the_command_line_looks_back(instance: Instance) -> None:
    task = instance.name("task")
    live_through(instance, task)
    lines = instance.refold("task", task, "--history").stdout.decode().splitlines()
    assert lines[0].split("\t") == ["position", "time", "type", "run", "what", "effect"]
    called = next(line.split("\t") for line in lines if "tool.called" in line)
    then = json.loads(instance.refold("task", task, "--at", called[0], "--json").stdout)
    assert [call["call_id"] for call in then["calls_in_flight"]] == ["c1"]
    data = instance.refold("checkpoints", task, "k1")
    assert data.stdout == orjson.dumps(DATA) + b"\n"
    kept = instance.refold("checkpoints", task).stdout.decode().splitlines()
    assert len(kept) == 3 and kept[2].split("\t")[1:5] == ["k1", "3", str(len(orjson.dumps(DATA))), "yes"]
    wrong = instance.refold("task", task, "--at", "9-9")
    assert wrong.returncode == 1 and b"past the end" in wrong.stderr
