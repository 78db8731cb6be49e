"""What the SDK tells of earlier attempts, on a real instance: everything typed, nothing changed in silence."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from refold import (
    AsyncRefold,
    Change,
    Conflict,
    NewerCheckpoint,
    NoCheckpoint,
    NoteConflict,
    Refold,
    configured,
)

from tests.instance import Instance, running_instance, until

PLAN: list[str | Mapping[str, Any]] = ["look", {"id": "pay", "title": "Pay it"}]
PROMPT = "Be kind."
CONFIGURED: dict[str, Any] = {"model": "m1", "system_prompt": PROMPT, "tools": [{"name": "pay"}]}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


@pytest.fixture
def client(instance: Instance, tmp_path: Path) -> Iterator[Refold]:
    with Refold(instance.url, agent="payer", spool=tmp_path / "spool", timeout_s=20) as made:
        yield made


def crash(client: Refold, task: str) -> str:
    """A first attempt that dies of a fault of its own while it waits for an answer; its run."""
    with suppress(ZeroDivisionError), client.run("pay", task=task, checkpoint_version="2", **CONFIGURED) as run:
        run.plan(PLAN)
        with run.step("look") as step:
            step.result = 40
        run.note("rate", "1.07", category="external", ttl_s=3600)
        run.observe("the counter is shut")
        run.workbench(requirements=["a receipt"], preconditions=["enough money"])
        run.checkpoint({"z": [1, 2], "a": None})
        run.request_approval("pay-40", action="pay 40")
        raise ZeroDivisionError
    return run.id


def test_what_an_attempt_left_is_typed(instance: Instance, client: Refold) -> None:
    task = instance.name("left")
    crashed = crash(client, task)
    config = configured(**CONFIGURED)
    found = client.resume(task, knows="2", config=config)
    assert (found.status, found.attempt, found.run, found.cursor) == ("interrupted", 1, crashed, "pay")
    assert (found.results, found.changed, found.system_prompt) == ({"look": 40}, (), PROMPT)
    (note,) = found.notes
    assert (note.note, note.content, note.source, note.run) == ("rate", "1.07", "payer", crashed)
    assert (note.stale, note.verify_again, note.fresh_until > note.written_at) == (False, True, True)
    assert found.workbench.observations == ("the counter is shut",)
    assert (found.workbench.requirements, found.workbench.preconditions) == (("a receipt",), ("enough money",))
    assert (found.checkpoint, found.checkpoint_version) == ({"z": [1, 2], "a": None}, "2")
    assert found.checkpoint_schema == "same"
    (asked,) = found.pending_approvals
    assert (asked.action, asked.changed) == ("pay 40", ())
    assert {*asked.versions} == {"model", "system_prompt", "tools", "plan"}
    with pytest.raises(NoCheckpoint, match=r"nothing saved for task 'nobody'"):
        client.resume("nobody")


def test_another_configuration_is_reported_and_an_approval_is_not_taken_for_it(
    instance: Instance, client: Refold, caplog: pytest.LogCaptureFixture
) -> None:
    task = instance.name("changed")
    crash(client, task)
    caplog.set_level(logging.WARNING, "refold")
    with client.run(task=task, resume=True, model="m2", system_prompt=PROMPT) as run:
        assert run.resumed is not None
        assert run.resumed.changed == (Change("model", "m1", "m2"),)
        (asked,) = run.resumed.pending_approvals
        assert Change("model", "m1", "m2") in asked.changed
        assert "plan" not in {change.what for change in asked.changed}
        run.plan(["look", "pay", "thank"])
        run.skip("pay")
    assert f"task {task!r} goes on with another model than its last attempt had: m2, before m1" in caplog.text
    (asked,) = client.resume(task).pending_approvals
    assert "plan" in {change.what for change in asked.changed}


def test_a_checkpoint_of_a_newer_schema_stops_older_code_before_it_begins(instance: Instance, client: Refold) -> None:
    task = instance.name("newer")
    crash(client, task)
    with pytest.raises(NewerCheckpoint, match="is of version 2, and this code knows 1") as caught:
        client.run(task=task, resume=True, checkpoint_version="1").__enter__()
    assert caught.value.version == "2"
    assert client.resume(task).attempt == 1, "nothing was begun"
    with client.run(task=task, resume=True, checkpoint_version="2.1") as run:
        assert run.resumed is not None and run.resumed.checkpoint_schema == "older"


def test_a_sub_agent_hands_its_result_to_its_parent(instance: Instance, client: Refold) -> None:
    parent, child = instance.name("parent"), instance.name("child")
    with suppress(ZeroDivisionError), client.run("report", task=parent) as run:
        with client.run("look it up", task=child, parent_run=run.id) as sub:
            sub.conclude({"answer": 42})
        raise ZeroDivisionError
    until(lambda: [one.result for one in client.resume(parent).children] == [{"answer": 42}])
    (found,) = client.resume(parent).children
    assert (found.task, found.status, found.parent_run) == (child, "completed", run.id)


def test_the_async_client_tells_the_same(instance: Instance, client: Refold, tmp_path: Path) -> None:
    task = instance.name("async")
    crash(client, task)

    async def go_on() -> None:
        async with AsyncRefold(instance.url, spool=tmp_path / "async", timeout_s=20) as other:
            with pytest.raises(NewerCheckpoint):
                await other.run(task=task, resume=True, checkpoint_version="1").__aenter__()
            async with other.run(task=task, resume=True, model="m2") as run:
                assert run.resumed is not None and run.resumed.changed == (Change("model", "m1", "m2"),)
                await run.observe("seen")
                run.conclude("done")
                await run.plan([])
            found = await other.resume(task)
            assert (found.workbench.observations, found.raw["next_attempt"]) == ((), 3)

    asyncio.run(go_on())


def test_who_comes_second_is_told_who_goes_on(instance: Instance, client: Refold) -> None:
    """The loser of two attempts hears of the winner, from the SDK and from the command line."""
    task = instance.name("two")
    crash(client, task)
    with client.run(task=task, resume=True) as winner:
        late = {"id": instance.name("e"), "type": "run.started", "task": task, "run": "loser", "data": {"attempt": 2}}
        answer = instance.publish(late).json()["outcomes"][0]
        assert (answer["status"], answer["winner"]) == ("conflict", winner.id)
        with pytest.raises(Conflict) as caught, client.run(task=task):
            raise AssertionError("it must not begin")
        assert (caught.value.winner, winner.id in str(caught.value)) == (winner.id, True)
        done = instance.refold("publish", "-", stdin=json.dumps(late | {"id": instance.name("e")}).encode())
        assert done.returncode == 1
        assert winner.id in done.stdout.decode()


def test_who_writes_a_note_that_has_changed_meanwhile_is_told(
    instance: Instance, client: Refold, tmp_path: Path
) -> None:
    with client.run(task=instance.name("notes")) as run:
        run.note("seat", "12A", expected_version=0)
        run.note("seat", "14C", expected_version=1)
        with pytest.raises(NoteConflict, match="is at version 2, not 1: it was not overwritten") as caught:
            run.note("seat", "1F", expected_version=1)
        assert (caught.value.note, caught.value.version) == ("seat", 2)
        run.note("seat", "1F", expected_version=caught.value.version)
    (note,) = client.resume(run.task).notes
    assert (note.content, note.version) == ("1F", 3)

    async def again() -> None:
        async with (
            AsyncRefold(instance.url, spool=tmp_path / "async", timeout_s=20) as other,
            other.run(task=instance.name("notes")) as second,
        ):
            await second.note("seat", "12A", expected_version=0)
            with pytest.raises(NoteConflict):
                await second.note("seat", "1F", expected_version=0)

    asyncio.run(again())


def test_what_earlier_attempts_finished_is_not_left_open_by_the_one_that_ends_the_task(
    instance: Instance, client: Refold
) -> None:
    task = instance.name("again")
    crash(client, task)
    with client.run(task=task, resume=True) as run:
        run.plan(PLAN)
        with run.step("pay"):
            pass
    settled = instance.http.get(f"/v1/runs/{run.id}/settlement", params={"wait_s": 20}).json()
    assert {"step completed: look", "step completed: Pay it"} <= {*settled["evidence"]}
    assert not [line for line in settled["evidence"] if line.startswith("step not finished")]
