"""The read side of the API on a real instance: documents, pages, odd names, problems, refolding."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from events.database import Stores
from projections import generations
from projections.registry import PROJECTIONS
from services.api.paging import encode_cursor
from tests.instance import Instance, running_instance, until
from tests.servers import PostgresServer

HUGE = {"cursor": encode_cursor(["asc", *[10**18] * 5])}
ODD = "a/b c?d#e%2F+ü&x=1"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def stores_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path_factory.mktemp('stores')}"


@pytest.fixture(scope="module")
def instance(stores_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("api") / "data", REFOLD_DATABASE_URL=stores_url) as running:
        yield running


def test_a_builder_that_stands_still_is_not_waited_for(tmp_path: Path) -> None:
    """Its job process is stopped before it comes to anything; another one takes its place."""
    path = "/v1/projections/beliefs/rebuild"
    with running_instance(tmp_path / "data", REFOLD_LEASE_S="0.5") as instance:
        instance.http.post(path)
        (stopped,) = until(lambda: job_processes(instance))
        os.kill(stopped, signal.SIGSTOP)
        try:
            refolded = instance.refold("rebuild", "beliefs", "--json")
            assert (refolded.returncode, json.loads(refolded.stdout)["state"]) == (1, "abandoned")
            again = instance.refold("rebuild", "beliefs", "--json")
            assert (again.returncode, json.loads(again.stdout)["state"]) == (0, "done")
            until(lambda: projection(instance, "beliefs")["state"] == "live")
        finally:
            os.kill(stopped, signal.SIGKILL)


def job_processes(instance: Instance) -> list[int]:
    """The job processes that this instance has started."""
    of_process = Path(f"/proc/{instance.process.pid}/task/{instance.process.pid}/children")
    children = [int(pid) for pid in of_process.read_text().split()]
    return [pid for pid in children if b"services.api.job" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def whole_run(instance: Instance, run: str, **members: Any) -> str:
    """Publish a small finished run; the token of its end."""
    steps = [
        ("run.started", {"goal": "find it", "system_prompt": {"digest": "d1", "content": "Be brief."}}),
        ("plan.updated", {"steps": [{"id": "s1", "title": "look"}, {"id": "s2", "title": "tell"}]}),
        ("step.started", {"step": "s1"}),
        ("tool.called", {"call_id": "c1", "name": "search", "arguments": {"q": "key"}}),
        ("tool.returned", {"call_id": "c1", "result": {"place": "drawer-17"}}),
        ("step.completed", {"step": "s1", "summary": "it is in drawer-17"}),
        ("tool.called", {"call_id": "c2", "name": "open", "arguments": {"place": "drawer-17"}}),
        ("run.terminated", {"reason": "interrupt"}),
    ]
    events = [
        instance.event(run, type, data, seq=seq, agent="finder", **members) for seq, (type, data) in enumerate(steps, 1)
    ]
    return instance.stored(*events)


def test_nothing_is_saved_for_a_task_of_a_partition_that_is_empty(instance: Instance) -> None:
    for number in range(40):
        problem = instance.http.get(f"/v1/tasks/nobody-{number}/resume")
        assert (problem.status_code, problem.json()["code"]) == (404, "no_checkpoint")


def test_a_task_and_what_resuming_it_needs(instance: Instance) -> None:
    run = instance.name()
    token = whole_run(instance, run)
    task = instance.http.get(f"/v1/tasks/{run}", params={"after": token}).json()
    assert (task["status"], task["goal"], task["cursor"]) == ("interrupted", "find it", "s2")
    resume = instance.http.get(f"/v1/tasks/{run}/resume", params={"after": token}).json()
    assert [step["step"] for step in resume["finished_steps"]] == ["s1"]
    assert [call["call_id"] for call in resume["in_flight"]] == ["c2"]
    assert resume["in_flight"][0]["status"].startswith("interrupted")
    assert resume["system_prompt"] == {"digest": "d1", "content": "Be brief."}
    again = instance.http.get(f"/v1/tasks/{run}/resume", params={"after": token}).json()
    assert again["in_flight"] == resume["in_flight"]
    config = '{"system_prompt": "d2"}'
    changed = instance.http.get(f"/v1/tasks/{run}/resume", params={"config": config}).json()["config"]["changed_since"]
    assert {"what": "system_prompt", "before": "d1", "after": "d2"} in changed
    assert instance.http.get(f"/v1/tasks/{run}/resume", params={"config": "[1]"}).status_code == 422


def test_nothing_is_called_unknown_before_the_position_asked_for_is_folded(instance: Instance) -> None:
    """Who is told that nothing is saved of a task begins it anew; it may only not be folded yet."""
    folded = instance.stored(instance.event("somewhere"))
    never = re.sub(r"-\d+$", "-1000000000", folded)
    paths = [*(f"/v1/tasks/nobody{more}" for more in ("", "/resume")), "/v1/sessions/nobody/state", "/v1/cards/nobody"]
    with ThreadPoolExecutor(len(paths)) as pool:
        late = list(pool.map(lambda path: instance.http.get(path, params={"after": never}), paths))
    for path, response in zip(paths, late, strict=True):
        problem = response.json()
        assert (response.status_code, problem["code"], problem["read"]["reached"]) == (503, "behind", False), path
        assert response.headers["retry-after"]
        assert instance.http.get(path, params={"after": folded}).status_code == 404


def test_an_empty_choice_is_not_everything(instance: Instance) -> None:
    for path in ("/v1/projections/rebuild", "/v1/verify"):
        response = instance.http.post(path, json={"projections": []})
        assert (response.status_code, response.json()["code"]) == (422, "bad_parameter")


def test_a_rate_without_end_is_refused_at_once(instance: Instance) -> None:
    for what in ("rebuild", "dry-run"):
        for rate in ("inf", "nan", "0", "-1"):
            response = instance.http.post(f"/v1/projections/beliefs/{what}", params={"rate": rate})
            assert (response.status_code, response.json()["code"]) == (422, "bad_parameter"), rate


def test_unknown_things_are_404_with_a_code(instance: Instance) -> None:
    for path, code in {
        "/v1/tasks/nobody": "no_checkpoint",
        "/v1/tasks/nobody/resume": "no_checkpoint",
        "/v1/runs/nobody": "no_run",
        "/v1/runs/nobody/events": "no_run",
        "/v1/runs/nobody/settlement": "no_run",
        "/v1/sessions/nobody/state": "no_session_state",
        "/v1/cards/nobody": "no_card",
        "/v1/cards/nobody/raw": "no_card",
        "/v1/beliefs/nobody": "no_belief",
        "/v1/projections/nobody/rebuild": "no_projection",
        "/v1/verify/nobody": "no_job",
        "/v1/deadletters/nobody": "no_dead_letter",
        "/v1/nothing": "no_such_path",
    }.items():
        response = instance.http.get(path)
        assert (response.status_code, response.json()["code"]) == (404, code), path
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["detail"]
    assert instance.http.delete("/v1/events").status_code == 405


def test_names_of_any_characters_stand_in_one_segment(instance: Instance) -> None:
    """Slashes, spaces, question marks and non-ASCII letters in ids, for every kind of path."""
    name = f"{ODD}-{instance.name()}"
    token = whole_run(instance, name, session=name)
    segment = quote(name, safe="")
    assert instance.http.get(f"/v1/tasks/{segment}", params={"after": token}).json()["task"] == name
    assert instance.http.get(f"/v1/tasks/{segment}/resume").json()["task"] == name
    assert instance.http.get(f"/v1/runs/{segment}").json()["run"] == name
    assert len(instance.http.get(f"/v1/runs/{segment}/events").json()["items"]) >= 8
    settled = instance.http.get(f"/v1/runs/{segment}/settlement", params={"wait_s": 20}).json()
    assert settled["run"] == name
    until(lambda: instance.http.get(f"/v1/sessions/{segment}/state").status_code == 200)
    assert instance.http.get("/v1/tasks/a/b c").status_code == 404


def test_no_name_holds_a_nul(instance: Instance) -> None:
    """C22: what every store answers alike, though only one of them could search for it."""
    for path in ("/v1/tasks/a%00b", "/v1/cards?task=%00", "/v1/beliefs?agent=%00", "/v1/tasks?status=%00"):
        assert instance.http.get(path).status_code == 422, path
    for path in ("/v1/tasks/%FF%ED%A0%80", "/v1/tasks/%ZZ", "/v1/runs/%25/events", "/v1/tasks/" + "x" * 5000):
        assert instance.http.get(path).status_code == 404, path


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_events_are_stable(instance: Instance, order: str) -> None:
    """C38: six events of one millisecond, four a page, both directions: each once, in order."""
    run = instance.name()
    events = [instance.event(run, time="2026-03-01T10:00:00.123Z") for _ in range(6)]
    instance.stored(*events)
    seen, cursor = [], None
    while True:
        params = {"limit": 4, "order": order} | ({"cursor": cursor} if cursor else {})
        page = instance.http.get(f"/v1/runs/{run}/events", params=params).json()
        assert len(page["items"]) <= 4
        seen += [event["id"] for event in page["items"]]
        # what arrives between two pages moves nothing that was shown
        instance.stored(instance.event(run))
        cursor = page["next_cursor"]
        if cursor is None or len(seen) > 20:
            break
    wanted = [event["id"] for event in events]
    if order == "asc":
        assert seen[:6] == wanted
    else:
        assert seen == wanted[::-1]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_events_of_a_run_are_listed_as_they_were_received(instance: Instance, order: str) -> None:
    """A run has events in several partitions: of its task, its session and its scope."""
    run = instance.name()
    types = [
        ("step.started", {"step": "s1"}), ("settlement.attempted", {}), ("feedback.given", {"score": 1.0}),
        ("memory.proposed", {"memory": "m1", "content": "the key hangs left"}), ("step.completed", {"step": "s1"}),
    ]  # fmt: skip
    sent = []
    for number in range(3):
        for type, data in types:
            raw = instance.event(run, type, data, session=f"{run}-s{number}", user=f"{run}-u{number}")
            if instance.publish(raw).status_code == 200:
                sent.append(raw["id"])
    assert len(sent) >= 9
    seen, cursor = list[dict[str, Any]](), None
    while True:
        params = {"limit": 2, "order": order} | ({"cursor": cursor} if cursor else {})
        page = instance.http.get(f"/v1/runs/{run}/events", params=params).json()
        # the curator answers what is proposed, whenever it comes to it
        seen += [event for event in page["items"] if event["id"].startswith("e-")]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len({event["partition"] for event in seen}) > 1
    assert [event["id"] for event in seen] == (sent if order == "asc" else sent[::-1])


def test_rows_of_any_table_stay_within_the_organisation(instance: Instance) -> None:
    """Invariant 7: rows as they are stored, page after page, of the caller's organisation alone."""
    task = instance.name("task")
    orgs = {"x-refold-org": instance.name("org")}, {"x-refold-org": instance.name("org")}
    tokens = [
        instance.publish(
            *(instance.event(task, "step.started", {"step": f"s{n}"}) for n in range(count)), headers=headers
        ).json()["outcomes"][-1]["token"]
        for headers, count in zip(orgs, (5, 2), strict=True)
    ]
    path = "/v1/projections/task_state/tables/steps"
    for headers, token, count in zip(orgs, tokens, (5, 2), strict=True):
        seen, cursor = list[dict[str, Any]](), None
        while True:
            params = {"limit": 2, "after": token} | ({"cursor": cursor} if cursor else {})
            page = instance.http.get(path, params=params, headers=headers).json()
            assert page["read"]["reached"] is True
            seen += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert [row["step"] for row in seen] == [f"s{n}" for n in range(count)]
        assert all(row["key"] == f"task/{task}" and "org" not in row for row in seen)
    newest = instance.http.get(path, params={"limit": 1, "order": "desc"}, headers=orgs[0]).json()
    assert [row["step"] for row in newest["items"]] == ["s4"]
    # a cursor of one organisation opens nothing of another
    cursor = newest["next_cursor"]
    other = instance.http.get(path, params={"cursor": cursor}, headers=orgs[1]).json()["items"]
    assert {row["step"] for row in other} <= {"s0", "s1"}
    assert len(instance.http.get(path, params={"key": f"task/{task}"}, headers=orgs[0]).json()["items"]) == 5
    assert instance.http.get(path, params={"key": "task/nobody"}, headers=orgs[0]).json()["items"] == []
    assert instance.http.get(path, headers={"x-refold-org": instance.name("org")}).json()["items"] == []


def test_every_table_of_every_projection_can_be_read(instance: Instance) -> None:
    whole_run(instance, instance.name(), session=instance.name())
    for one in instance.http.get("/v1/projections").json()["items"]:
        for table in instance.http.get(f"/v1/projections/{one['name']}/tables").json()["items"]:
            path = f"/v1/projections/{one['name']}/tables/{table['table']}"
            page = instance.http.get(path, params={"limit": 1}).json()
            assert all(list(row) == table["columns"] for row in page["items"])
            if page["next_cursor"]:
                after_it = instance.http.get(path, params={"cursor": page["next_cursor"]})
                assert after_it.status_code == 200 and page["items"][0] not in after_it.json()["items"]
    for path in ("/v1/projections/nobody/tables", "/v1/projections/nobody/tables/x"):
        assert instance.http.get(path).json()["code"] == "no_projection"
    missing = instance.http.get("/v1/projections/task_state/tables/checkpoints")
    assert (missing.status_code, missing.json()["code"]) == (404, "no_table")
    assert "steps" in missing.json()["detail"]


def test_pages_of_runs_and_tasks(instance: Instance) -> None:
    task = instance.name("task")
    for attempt in range(1, 6):
        token = instance.stored(instance.event(instance.name(), "run.started", {"attempt": attempt}, task=task))
    pages = []
    cursor = None
    while True:
        params = {"task": task, "limit": 2, "order": "desc"} | ({"cursor": cursor} if cursor else {})
        page = instance.http.get("/v1/runs", params=params).json()
        pages.append([run["attempt"] for run in page["items"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == [[5, 4], [3, 2], [1]]
    listed = instance.http.get("/v1/tasks", params={"limit": 1, "after": token}).json()
    following = instance.http.get("/v1/tasks", params={"limit": 1000, "cursor": listed["next_cursor"]}).json()
    assert listed["items"][0]["task"] not in [one["task"] for one in following["items"]]


@pytest.mark.parametrize(
    "path",
    ["/v1/runs", "/v1/refused", "/v1/deadletters", "/v1/generations", "/v1/beliefs", "/v1/experiences",
     "/v1/notices", "/v1/projections/task_state/tables/steps"],
)  # fmt: skip
def test_bad_pages_are_refused(instance: Instance, path: str) -> None:
    for params in (
        {"limit": 0},
        {"limit": 5000},
        {"limit": "x"},
        {"cursor": "!!"},
        {"cursor": "WyJhc2MiLCJ4Il0"},
        HUGE,
    ):
        response = instance.http.get(path, params=params)
        assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json"), params


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/items/namespaces", "/v1/items", "/v1/checkpoints"])
def test_what_no_store_takes_is_refused_in_cursors_and_names(instance: Instance, path: str) -> None:
    """A NUL, which PostgreSQL refuses; what is not of the kind that places have; another list's place."""
    for place in (["a\0", "b", "c"], [True, False, True], [["a"], {}, "c"], [1, 2, 3], ["a", "b"]):
        response = instance.http.get(path, params={"cursor": encode_cursor(["asc", *place])})
        assert (response.status_code, response.json()["code"]) == (422, "bad_cursor"), place
    wrong = {"/v1/checkpoints": ("metadata", '{"run_id": "a\\u0000"}')}.get(path, ("prefix", '["a\\u0000"]'))
    if path != "/v1/tasks":
        response = instance.http.get(path, params=[wrong])
        assert (response.status_code, response.json()["code"]) == (422, "bad_parameter")


def test_cards_lead_back_to_their_originals(instance: Instance) -> None:
    run = instance.name()
    token = whole_run(instance, run)
    cards = instance.http.get("/v1/cards", params={"task": run, "after": token}).json()["items"]
    assert cards == instance.http.get(f"/v1/tasks/{run}/cards").json()["items"]
    card = next(card for card in cards if card.get("tool") == "search")
    assert card["uses"] == 1
    assert instance.http.get(f"/v1/cards/{card['card']}").json()["used_by"]
    original = instance.http.get(f"/v1/cards/{card['card']}/raw").json()
    assert original["data"]["result"] == {"place": "drawer-17"}
    elsewhere = {"x-refold-org": "other"}
    assert instance.http.get(f"/v1/cards/{card['card']}/raw", headers=elsewhere).status_code == 404
    assert instance.http.get("/v1/cards").status_code == 422


def test_beliefs_of_an_agent(instance: Instance) -> None:
    run = instance.name()
    whole_run(instance, run)
    found = until(lambda: instance.http.get("/v1/beliefs", params={"agent": "finder"}).json()["items"])
    belief = next(one for one in found if "search" in one["statement"])
    assert 0 <= belief["confidence"] <= 1
    path = f"/v1/beliefs/{quote(belief['belief'], safe='')}"
    assert instance.http.get(path, params={"agent": "finder"}).json()["evidence"]
    assert instance.http.get("/v1/beliefs", params={"agent": "a", "user": "u"}).status_code == 422
    assert instance.http.get("/v1/beliefs", params={"user": "nobody"}).json()["items"] == []


def test_a_settlement_says_why_there_is_none(instance: Instance) -> None:
    run = instance.name()
    instance.stored(instance.event(run, "run.started", {"goal": "g"}))
    response = instance.http.get(f"/v1/runs/{run}/settlement")
    assert (response.status_code, response.json()["code"]) == (404, "no_settlement")


def test_rebuild_and_verify_run_beside_reads_and_writes(instance: Instance) -> None:
    run = instance.name()
    whole_run(instance, run)
    before = projection(instance, "task_state")["generation"]
    begun = instance.http.post("/v1/projections/task_state/rebuild")
    assert begun.status_code == 202
    joined = instance.http.post("/v1/projections/task_state/rebuild").json()
    assert (joined["id"], joined["note"]) == (begun.json()["id"], "")
    unchecked = instance.http.post("/v1/projections/task_state/rebuild", params={"check": True}).json()
    assert unchecked["id"] == joined["id"]
    assert "without the check" in unchecked["note"]
    assert instance.publish(instance.event(run)).status_code == 200
    job = until(lambda: finished(instance, begun.headers["location"]))
    assert (job["state"], job["generation"]) == ("done", before + 1), job
    assert projection(instance, "task_state")["generation"] == before + 1
    assert instance.http.get(f"/v1/tasks/{run}").json()["read"]["generation"] == f"task_state__g{before + 1}"
    started = instance.http.post("/v1/verify", json={"projections": ["task_state", "beliefs"]})
    assert started.status_code == 202
    verified = until(lambda: finished(instance, started.headers["location"]))
    assert verified["result"]["equal"] is True
    assert [one["name"] for one in verified["result"]["projections"]] == ["task_state", "beliefs"]
    generations = instance.http.get("/v1/generations", params={"projection": "task_state"}).json()["items"]
    assert [one["state"] for one in generations[:2]] == ["active", "retired"]
    assert instance.http.post("/v1/verify", json={"projections": ["nobody"]}).status_code == 404


def test_an_abandoned_rebuild_says_so_and_is_continued(instance: Instance, stores_url: str) -> None:
    """What a builder leaves that was killed: a generation that is being built, and nobody who holds its lease."""
    stores = Stores(stores_url)
    log = stores.log()
    left = log.write_now(lambda conn: generations.create(conn, PROJECTIONS["beliefs"]))
    log.close()
    path = "/v1/projections/beliefs/rebuild"
    told = instance.http.get(path).json()
    assert (told["state"], told["id"]) == ("abandoned", left.name)
    assert "run `refold rebuild beliefs`" in told["error"]
    shown = projection(instance, "beliefs")
    assert (shown["state"], shown["hint"]) == ("abandoned", told["error"])
    begun = instance.http.post(path).json()
    assert begun["state"] == "running"
    assert projection(instance, "beliefs")["state"] in ("rebuilding", "live")
    job = until(lambda: finished(instance, path))
    assert (job["state"], job["generation"]) == ("done", left.number), job


def test_a_task_that_is_durable_is_not_unknown_though_no_token_is_given(instance: Instance) -> None:
    """The projector need not have come to it yet."""
    for _ in range(20):
        run = instance.name()
        instance.stored(instance.event(run, "run.started", {"goal": "g"}))
        assert instance.http.get(f"/v1/tasks/{run}").json()["goal"] == "g"
    assert instance.http.get(f"/v1/tasks/{instance.name()}").status_code == 404


def projection(instance: Instance, name: str) -> dict[str, Any]:
    items = instance.http.get("/v1/projections").json()["items"]
    return next(one for one in items if one["name"] == name)


def finished(instance: Instance, path: str) -> dict[str, Any] | None:
    job: dict[str, Any] = instance.http.get(path).json()
    return job if job["state"] != "running" else None


def test_reading_after_a_token(instance: Instance) -> None:
    bad = instance.http.get("/v1/tasks/x", params={"after": "nonsense"})
    assert (bad.status_code, bad.json()["code"]) == (422, "bad_token")
    foreign = instance.http.get("/v1/tasks/x", params={"after": "00000000~0.1-0"})
    assert (foreign.status_code, foreign.json()["code"]) == (422, "foreign_token")
    log = instance.http.get("/v1/log").json()
    assert log["events"] == sum(int(mark.partition("-")[2]) + 1 for mark in log["watermarks"].values())
    until(lambda: all(one["reached"] for one in after(instance, log["token"])))


def after(instance: Instance, token: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = instance.http.get("/v1/projections", params={"after": token}).json()["items"]
    return items


def test_health_and_openapi(instance: Instance) -> None:
    assert instance.http.get("/healthz").json() == {"status": "ok"}
    ready = instance.http.get("/readyz").json()
    assert ready["ready"] is True
    assert set(ready["projections"]) == set(PROJECTIONS)
    schema = instance.http.get("/openapi.json").json()
    assert "/v1/events" in schema["paths"]
    assert "/v1/tasks/{task}/resume" in schema["paths"]
    # nothing of the documentation comes from elsewhere
    unknown = instance.http.get("/docs")
    assert unknown.status_code == 404
    assert "/openapi.json" in unknown.json()["detail"]
    root = instance.http.get("/").json()
    assert (root["name"], root["version"], root["openapi"]) == ("refold", schema["info"]["version"], "/openapi.json")
