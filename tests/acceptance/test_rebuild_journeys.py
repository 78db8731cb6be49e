"""Rebuilding as people do it: look first, rebuild several, cancel, go back, clear away, put a part right."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import update

from events.database import Stores
from projections.rebuilding.scratch import MARK
from projections.registry import PROJECTIONS
from projections.task.tables import TASKS
from tests.acceptance.test_status_watch import ESCAPES, terminal
from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until

EVENTS = 600
SLOWLY = "20"
"""Events a second at which a rebuild takes long enough to be interrupted."""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("rebuilds") / "data") as running:
        events = [
            event
            for number in range(EVENTS // 2)
            for event in (
                running.event(f"t{number}", "run.started", {"goal": f"goal {number}"}, agent="clerk"),
                running.event(f"t{number}", "note.written", {"key": "n", "content": number}, agent="clerk"),
            )
        ]
        token = running.stored(*events)
        until(lambda: all(one["reached"] for one in listed(running, token)))
        yield running


def listed(instance: Instance, token: str | None = None) -> list[dict[str, Any]]:
    params = {"after": token} if token else {}
    items: list[dict[str, Any]] = instance.http.get("/v1/projections", params=params).json()["items"]
    return items


def generation(instance: Instance, name: str) -> int:
    return next(int(one["generation"]) for one in listed(instance) if one["name"] == name)


def state(instance: Instance, name: str) -> str:
    return next(str(one["state"]) for one in listed(instance) if one["name"] == name)


def documents(done: subprocess.CompletedProcess[bytes], exit_code: int = 0) -> list[Any]:
    assert done.returncode == exit_code, (done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def stores(instance: Instance) -> Stores:
    return Stores(f"sqlite:///{instance.data / 'db'}")


@contextmanager
def slow_rebuild(instance: Instance, name: str) -> Iterator[dict[str, Any]]:
    """A rebuild that has begun and is not about to end; it is over in the end."""
    path = f"/v1/projections/{name}/rebuild"
    instance.http.post(path, params={"rate": SLOWLY})
    yield until(lambda: folding(instance, path))
    until(lambda: instance.http.get(path).json()["state"] != "running")


def folding(instance: Instance, path: str) -> dict[str, Any] | None:
    job: dict[str, Any] = instance.http.get(path).json()
    assert job["state"] == "running", job
    return job if job["total"] and job["events_per_s"] else None


def test_several_are_rebuilt_in_one_pass(instance: Instance) -> None:
    names = ["task_state", "memory_cards"]
    before = [generation(instance, name) for name in names]
    done = documents(instance.refold("rebuild", *names, "--check", "--processes", "1", "--json"))
    assert [(one["projection"], one["state"]) for one in done] == [(name, "done") for name in names]
    assert [one["generation"] for one in done] == [number + 1 for number in before]
    assert done[0]["id"] == done[1]["id"], "one job did both"
    assert {tuple(one["projections"]) for one in done} == {tuple(names)}
    assert instance.refold("verify", *names).returncode == 0


def test_a_dry_run_tells_that_nothing_would_change_and_changes_nothing(instance: Instance) -> None:
    before = listed(instance)
    (told,) = documents(instance.refold("rebuild", "task_state", "--dry-run", "--json"))
    assert (told["differs"], told["current_code"], told["first"]) == (False, True, [])
    assert told["events"] >= EVENTS and told["eta_s"] > 0
    assert next(one for one in told["tables"] if one["table"] == "tasks")["live_rows"] == EVENTS // 2
    assert [one["generation"] for one in listed(instance)] == [one["generation"] for one in before]
    shown = instance.refold("rebuild", "beliefs", "settlements", "--dry-run").stdout.decode()
    assert shown.count("nothing would change") == 2 and "everything" in shown
    assert stores(instance).find_generations(MARK) == []


def test_damage_is_shown_and_one_key_is_put_right(instance: Instance) -> None:
    name = f"task_state__g{generation(instance, 'task_state')}"
    db = stores(instance).generation(name)
    try:
        damaged = TASKS.c.key.in_(["task/t7", "task/t8"])
        db.write_now(lambda conn: conn.execute(update(TASKS).where(damaged).values(goal="rubbish")))
    finally:
        db.close()
    assert instance.refold("verify", "task_state").returncode == 1
    looked = instance.refold("rebuild", "task_state", "--key", "task/t7", "--dry-run").stdout.decode()
    assert "tasks, row default / task/t7: changed" in looked and "t8" not in looked
    assert 'goal: "rubbish" -> "goal 7"' in looked
    assert instance.http.get("/v1/tasks/t7").json()["goal"] == "rubbish", "looking changes nothing"
    (mended,) = documents(instance.refold("rebuild", "task_state", "--key", "task/t7", "--json"))
    assert (mended["differs"], mended["key"], mended["tenant"]) == (True, "task/t7", "default")
    assert instance.http.get("/v1/tasks/t7").json()["goal"] == "goal 7"
    assert instance.http.get("/v1/tasks/t8").json()["goal"] == "rubbish"
    shown = instance.refold("rebuild", "task_state", "--tenant", "default").stdout.decode()
    assert "these rows were put right" in shown and "task/t8" in shown
    # projectors took over again, and go on from what is right
    token = instance.stored(instance.event("t7", "run.terminated", {"reason": "end_turn"}))
    assert instance.http.get("/v1/tasks/t7", params={"after": token}).json()["status"] == "completed"
    assert instance.refold("verify", "task_state").returncode == 0
    response = instance.http.post("/v1/projections/task_state/repair")
    assert (response.status_code, response.json()["code"]) == (422, "no_scope")


def test_a_rebuild_is_watched_and_cancelled(instance: Instance) -> None:
    before = generation(instance, "settlements")
    with slow_rebuild(instance, "settlements") as job:
        assert job["phase"] == "folding" and job["eta_s"] is not None
        assert 0 < job["events_per_s"] < EVENTS
        # of all that there are, it alone is being rebuilt
        done = instance.refold("rebuild", "--all", "--cancel", "--json")
        assert documents(done) == [{"projection": "settlements", "state": "cancelled"}]
        assert done.stderr.count(b"nothing to cancel") == len(PROJECTIONS) - 1
    after = instance.http.get("/v1/projections/settlements/rebuild").json()
    assert (after["state"], generation(instance, "settlements")) == ("cancelled", before)
    again = instance.refold("rebuild", "settlements", "--cancel")
    assert (again.returncode, b"nothing to cancel" in again.stderr) == (1, True)
    assert instance.http.delete("/v1/projections/settlements/rebuild").json()["code"] == "no_rebuild"
    assert instance.refold("verify", "settlements").returncode == 0


def test_one_of_several_is_cancelled_and_the_others_go_on(instance: Instance) -> None:
    names = ["beliefs", "settlements"]
    before = {name: generation(instance, name) for name in names}
    begun = instance.http.post("/v1/projections/rebuild", json={"projections": names, "rate": 80}).json()["items"]
    assert [one["projection"] for one in begun] == names
    until(lambda: folding(instance, "/v1/projections/beliefs/rebuild"))
    assert instance.http.delete("/v1/projections/beliefs/rebuild").status_code == 202
    ended = {name: until(lambda name=name: over(instance, name)) for name in names}
    assert {name: job["state"] for name, job in ended.items()} == {"beliefs": "cancelled", "settlements": "done"}
    assert generation(instance, "beliefs") == before["beliefs"]
    assert generation(instance, "settlements") > before["settlements"]


def over(instance: Instance, name: str) -> dict[str, Any] | None:
    job: dict[str, Any] = instance.http.get(f"/v1/projections/{name}/rebuild").json()
    return job if job["state"] != "running" else None


def test_a_rebuild_of_another_process_is_cancelled_too(instance: Instance) -> None:
    before = generation(instance, "beliefs")
    elsewhere = subprocess.Popen(
        [sys.executable, "-m", "services.api.job", "rebuild", "beliefs", f"--rate={SLOWLY}"],
        cwd=ROOT, env=environment(REFOLD_DATA=str(instance.data)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        until(lambda: state(instance, "beliefs") == "rebuilding")
        (told,) = documents(instance.refold("rebuild", "beliefs", "--cancel", "--json"))
        assert told["state"] == "cancelled"
        out, _ = elsewhere.communicate(timeout=60)
        assert b'"cancelled"' in out.splitlines()[-1]
    finally:
        elsewhere.kill()
        elsewhere.wait()
    assert generation(instance, "beliefs") == before


def test_a_verification_is_cancelled(instance: Instance) -> None:
    begun = instance.http.post("/v1/verify", json={}).json()
    path = f"/v1/verify/{begun['id']}"
    assert instance.http.delete(path).status_code == 202
    ended = until(lambda: ended_at(instance, path))
    assert (ended["state"], ended["result"]) == ("cancelled", None)
    assert (instance.http.delete(path).status_code, instance.http.delete("/v1/jobs/no").status_code) == (409, 404)
    assert stores(instance).find_generations(MARK) == []


def ended_at(instance: Instance, path: str) -> dict[str, Any] | None:
    job: dict[str, Any] = instance.http.get(path).json()
    return job if job["state"] != "running" else None


def test_a_terminal_shows_how_far_it_is(instance: Instance) -> None:
    """A bar with events of all, events a second, and the time that is left."""
    with terminal(100, "rebuild", "beliefs", "--rate", SLOWLY, "--data", str(instance.data)) as shown:
        bar = re.compile(r"beliefs \(folding\) .* [1-9]\d*/\d+ events [1-9]\d* events/s 0:\d\d:\d\d")
        shown.until(lambda wrote: bar.search(ESCAPES.sub("", wrote)))
        assert instance.refold("rebuild", "beliefs", "--cancel").returncode == 0
        shown.until(lambda wrote: "cancelled" in wrote)


def test_ctrl_c_leaves_a_rebuild_running_and_says_how_to_cancel_it(instance: Instance) -> None:
    command = [*REFOLD, "rebuild", "beliefs", "--rate", SLOWLY]
    env = environment(REFOLD_DATA=str(instance.data))
    watcher = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE)
    until(lambda: instance.http.get("/v1/projections/beliefs/rebuild").json().get("state") == "running")
    until(lambda: folding(instance, "/v1/projections/beliefs/rebuild"))
    watcher.send_signal(signal.SIGINT)
    _, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 130
    assert b"goes on by itself" in said and b"`refold rebuild beliefs --cancel` cancels it" in said
    assert instance.http.get("/v1/projections/beliefs/rebuild").json()["state"] == "running"
    assert instance.refold("rebuild", "beliefs", "--cancel").returncode == 0


def test_going_back_and_clearing_away(instance: Instance) -> None:
    (built,) = documents(instance.refold("rebuild", "memory_cards", "--json"))
    here = built["generation"]
    (back,) = documents(instance.refold("rebuild", "memory_cards", "--rollback", "--json"))
    assert back == {"projection": "memory_cards", "generation": here - 1, "current_code": True}
    assert generation(instance, "memory_cards") == here - 1
    assert instance.refold("verify", "memory_cards").returncode == 0
    # and forward again: going back twice is where one was
    shown = instance.refold("rebuild", "memory_cards", "--rollback").stdout.decode()
    assert f"reads use generation {here} again" in shown

    active = instance.refold("generations", "--drop", f"memory_cards__g{here}")
    assert (active.returncode, b"is active and cannot be dropped" in active.stderr) == (1, True)
    assert instance.http.delete(f"/v1/generations/memory_cards__g{here}").status_code == 409
    assert instance.refold("generations", "--drop", "memory_cards__g999").returncode == 1
    (cleared,) = documents(instance.refold("rebuild", "memory_cards", "--drop-old", "--keep", "0", "--json"))
    assert f"memory_cards__g{here - 1}" in cleared["dropped"]
    assert not [name for name in stores(instance).find_generations("memory_cards") if name != f"memory_cards__g{here}"]
    nowhere = instance.refold("rebuild", "memory_cards", "--rollback")
    assert (nowhere.returncode, b"no earlier generation" in nowhere.stderr) == (1, True)
    assert instance.http.post("/v1/projections/memory_cards/rollback").status_code == 409


@pytest.mark.parametrize("what", ["--dry-run", "--cancel", "--drop-old"])
def test_an_unknown_projection_is_wrong_usage_and_the_known_ones_are_listed(instance: Instance, what: str) -> None:
    done = instance.refold("rebuild", "task_sate", what)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"task_state" in done.stderr


def test_the_openapi_document_tells_all_of_it(instance: Instance) -> None:
    paths = instance.http.get("/openapi.json").json()["paths"]
    assert paths["/v1/projections/{name}/rebuild"].keys() == {"get", "post", "delete"}
    for what in ("dry-run", "repair", "rollback", "drop-old"):
        operation = paths[f"/v1/projections/{{name}}/{what}"]["post"]
        assert operation["description"]
    assert paths["/v1/projections/rebuild"]["post"] and paths["/v1/jobs/{id}"].keys() == {"get", "delete"}
    assert paths["/v1/verify/{id}"]["delete"] and paths["/v1/generations/{name}"]["delete"]
    given = {one["name"] for one in paths["/v1/projections/{name}/rebuild"]["post"]["parameters"]}
    assert {"check", "rate", "processes", "allow_dead_letters"} <= given
    refused = instance.http.post("/v1/projections/task_state/rebuild", params={"chekc": True})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_parameter")


def test_nothing_is_left_behind(instance: Instance) -> None:
    """Run after the others: no scratch, no half-built generation, and everything is what the log says."""
    assert stores(instance).find_generations(MARK) == []
    states = {one["state"] for one in instance.http.get("/v1/generations", params={"limit": 500}).json()["items"]}
    assert "building" not in states
    assert documents(instance.refold("verify", "--json"))[0]["equal"] is True
