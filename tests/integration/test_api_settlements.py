"""What runs leave, over HTTP and by command, from a real instance that knows a real model server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refold import Refold

from tests.instance import Instance, running_instance, until
from tests.model_server import GOOD, ModelServer, good, model_server, says


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def instance(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("settled")
    with running_instance(folder / "data", REFOLD_MODEL_URL=model.url, REFOLD_MODEL_KEY="sesame") as running:
        yield running


def a_run(instance: Instance, session: str, reason: str = "end_turn", model: str = "m") -> tuple[str, str]:
    """A small run that has ended; its name, and the token of its end."""
    run = instance.name()
    events = [
        ("run.started", {"goal": "fix it", "model": model}),
        ("message.added", {"role": "user", "content": "please"}),
        ("tool.called", {"call_id": "c", "name": "bash", "arguments": {"command": "make"}}),
        ("run.terminated", {"reason": reason}),
    ]
    return run, instance.stored(*(instance.event(run, kind, data, session=session) for kind, data in events))


def state_of(instance: Instance, session: str, token: str, wait_s: float = 20) -> dict[str, Any]:
    path = f"/v1/sessions/{session}/state"
    document: dict[str, Any] = instance.http.get(path, params={"after": token, "wait_s": wait_s}).json()
    return document


def test_a_session_is_read_when_it_is_settled(instance: Instance, model: ModelServer) -> None:
    session = instance.name("s")
    model.plan = [good(after_s=0.5)]
    run, token = a_run(instance, session, reason="timeout")
    found = state_of(instance, session, token)
    assert (found["run"], found["state"]["goal"], found["stale"], found["settling"]) == (run, "fix it", False, [])
    assert (found["reason"], found["interrupted"]) == ("timeout", True)
    assert model.keys[-1] == "Bearer sesame"
    told = json.loads(instance.refold("settlements", "--session", session, "--json").stdout)
    assert told["state"] == found["state"]


def test_while_it_is_settling_the_older_state_stands_stale_with_what_events_prove(
    instance: Instance, model: ModelServer
) -> None:
    session = instance.name("s")
    run, token = a_run(instance, session)
    first = state_of(instance, session, token)
    may_answer = threading.Event()
    model.plan = [replace(good(), until=may_answer)]
    next_run, token = a_run(instance, session, reason="interrupt")
    found = state_of(instance, session, token, wait_s=0.3)
    may_answer.set()
    assert (found["run"], found["state"], found["stale"]) == (run, first["state"], True)
    assert [one["run"] for one in found["settling"]] == [next_run]
    (since,) = found["evidence_since"]
    assert (since["run"], since["reason"], since["interrupted"]) == (next_run, "interrupt", True)
    assert since["evidence"] == ["call without an answer, check before repeating: bash (c)"]
    assert state_of(instance, session, token)["run"] == next_run


def test_a_session_without_any_settlement_has_evidence(instance: Instance, model: ModelServer) -> None:
    session = instance.name("s")
    may_answer = threading.Event()
    model.plan = [replace(good(), until=may_answer)]
    run, token = a_run(instance, session)
    found = state_of(instance, session, token, wait_s=0)
    may_answer.set()
    assert (found["state"], found["stale"], found["evidence_since"][0]["run"]) == (None, True, run)
    assert state_of(instance, session, token)["state"]["goal"] == "fix it"


def test_a_degraded_run_can_be_settled_again(instance: Instance, model: ModelServer) -> None:
    """C45: by the same model, once it answers; the former settlement stays as history."""
    session = instance.name("s")
    model.answer = lambda body: says("I would rather not")
    try:
        run, token = a_run(instance, session)
        path = f"/v1/runs/{run}"
        assert instance.http.post(f"{path}/settle").json()["code"] == "settling"
        degraded = instance.http.get(f"{path}/settlement", params={"wait_s": 60}).json()
        assert (degraded["degraded_reason"], degraded["attempts"]) == ("invalid_output", 4)
        assert state_of(instance, session, token)["stale"]
    finally:
        model.answer = lambda body: good()
    done = instance.refold("settle", run, "--by", "ada", "--wait", "60", "--json")
    again = json.loads(done.stdout)
    assert (again["version"], again["degraded"], [one["version"] for one in again["history"]]) == (2, False, [1])
    until(lambda: state_of(instance, session, token)["version"] == 2)
    assert not state_of(instance, session, token)["stale"]
    assert "version: 3" not in instance.refold("settlements", "--run", run).stdout.decode()


def test_only_what_has_ended_is_settled_again(instance: Instance) -> None:
    run = instance.name()
    assert instance.http.post(f"/v1/runs/{run}/settle").status_code == 404
    instance.stored(instance.event(run, "run.started", {}))
    refused = instance.http.post(f"/v1/runs/{run}/settle")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_ended")


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "answers nothing of use"])
def test_a_run_that_settles_itself_costs_the_backend_no_call(
    instance: Instance, model: ModelServer, tmp_path: Path, answers: bool
) -> None:
    """What it could not settle itself is settled by evidence, at once."""
    before = len(model.requests)
    text = json.dumps(GOOD, ensure_ascii=False) if answers else "I would rather not"
    with Refold(instance.url, spool=tmp_path) as client, client.run("fix it", model="m", settle=lambda _: text) as run:
        run.tool("edit", {"path": "a.py"}, side_effect=True).__enter__()
    found = instance.http.get(f"/v1/runs/{run.id}/settlement", params={"wait_s": 30}).json()
    if answers:
        assert (found["by"], found["session_state"]["goal"], found["attempts"]) == ("agent", "fix it", 1)
    else:
        assert (found["degraded_reason"], found["attempts"]) == ("invalid_output", 4)
        assert found["evidence"][0].startswith("side effect without an answer, check before repeating: edit")
    assert len(model.requests) == before


def test_how_runs_are_settled_is_a_metric(instance: Instance) -> None:
    run, token = a_run(instance, instance.name("s"), model="")
    instance.http.get(f"/v1/runs/{run}/settlement", params={"wait_s": 20, "after": token}).raise_for_status()
    lines = instance.http.get("/metrics").text.splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if line.startswith("refold_settled_runs{"))
    assert float(counts['refold_settled_runs{how="no_model"}']) >= 1
    assert counts['refold_settled_runs{how="budget"}'] == "0.0"
