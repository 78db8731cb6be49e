"""Resuming a task over HTTP, from the command line and from a file: a real instance, one for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.instance import Instance, refold, running_instance, until


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("resume") / "data") as running:
        yield running


class Story:
    """The events of one task, in order."""

    def __init__(self, instance: Instance, task: str = "", **names: str) -> None:
        self.instance, self.task, self.names = instance, task or instance.name("task"), names
        self.run, self.raws = f"{self.task}-r1", list[dict[str, Any]]()

    def add(self, type: str, data: dict[str, Any] | None = None, **members: Any) -> Story:
        made = self.instance.event(self.run, type, data or {}, task=self.task, **(self.names | members))
        self.raws.append(made)
        return self

    def stored(self) -> Story:
        self.instance.stored(*self.raws)
        return self

    def resume(self, **params: str) -> dict[str, Any]:
        answer = self.instance.http.get(f"/v1/tasks/{self.task}/resume", params=params)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document


def cut_off(instance: Instance, **names: str) -> Story:
    """A task that died with a payment under way, and all that can be known of one."""
    return (
        Story(instance, **names)
        .add("run.started", {"goal": "pay", "model": "m1", "system_prompt": {"digest": "p1", "content": "Be kind."}})
        .add("plan.updated", {"steps": [{"id": "look", "title": "Look"}, {"id": "pay"}]})
        .add("step.started", {"step": "look"})
        .add("tool.called", {"call_id": "c1", "name": "look", "step": "look", "arguments": {"q": 1}})
        .add("tool.returned", {"call_id": "c1", "name": "look", "result": {"found": 40}})
        .add("step.completed", {"step": "look", "summary": "40 to pay", "result": 40})
        .add("tool.called", {"call_id": "c2", "name": "ring", "arguments": {"who": "bank"}})
        .add("tool.failed", {"call_id": "c2", "name": "ring", "error": "engaged"})
        .add("workbench.updated", {"requirements": ["a receipt is wanted"], "add": True})
        .add("note.written", {"key": "rate", "content": "1.07", "category": "external", "ttl_s": 60})
        .add("note.written", {"key": "tone", "content": "formal"})
        .add("note.written", {"key": "guess", "content": "they pay monthly", "category": "assumption"})
        .add("decision.made", {"chosen": "transfer", "rationale": "no cash"})
        .add("approval.requested", {"approval": "a1", "versions": {"model": "m0", "system_prompt": "p1"}})
        .add("tool.called", {"call_id": "c3", "name": "pay", "idempotency_key": "k3", "side_effect": True})
    )  # fmt: skip


def test_a_resume_tells_all_that_a_new_process_needs(instance: Instance) -> None:
    """C20."""
    story = cut_off(instance).stored()
    found = story.resume()
    assert (found["next_attempt"], found["cursor"], [step["step"] for step in found["finished_steps"]]) == (
        2,
        "pay",
        ["look"],
    )
    call = found["in_flight"][0]
    assert (call["idempotency_key"], call["status"]) == ("k3", "interrupted - check before repeating")
    assert found["workbench"]["requirements"] == ["a receipt is wanted"]
    failed = found["workbench"]["to_retry"][0]
    assert (failed["name"], failed["arguments"], failed["error"], failed["failures"]) == (
        "ring", {"who": "bank"}, "engaged", 1,
    )  # fmt: skip
    notes = {note["note"]: note for note in found["notes"]}
    assert (notes["rate"]["stale"], notes["rate"]["verify_again"]) == (True, True)
    assert (notes["tone"]["stale"], notes["tone"]["verify_again"], notes["tone"]["run"]) == (False, False, story.run)
    assert found["approvals"][0]["changed"] == [{"what": "model", "before": "m0", "after": "m1"}]
    assert found["system_prompt"] == {"digest": "p1", "content": "Be kind."}
    assert (found["checkpoint"], found["pinned_evidence"], found["session_state"]) == (None, [], None)
    whole = instance.http.get(f"/v1/tasks/{story.task}/events/{found['results'][0]['position']}").json()
    assert whole["data"] == {"call_id": "c1", "name": "look", "result": {"found": 40}}
    for path, status in ((f"{story.task}/events/9-9", 404), (f"{story.task}/events/x", 422), ("nobody/export", 404)):
        assert instance.http.get(f"/v1/tasks/{path}").status_code == status, path


def test_asked_twice_the_answer_is_the_same_byte_for_byte(instance: Instance) -> None:
    """C20."""
    story = cut_off(instance).stored()
    path = f"/v1/tasks/{story.task}/resume"
    assert instance.http.get(path).content == instance.http.get(path).content


def test_a_checkpoint_comes_back_byte_for_byte_and_a_newer_schema_is_told(instance: Instance) -> None:
    data = b'{"z":1e16,"a":[1.5,null,"\xc3\xa9\\u0000",-0.0,9223372036854775807],"m":{"y":"\\\\","b":1e-7}}'
    story = Story(instance).add("run.started").add("checkpoint.saved", {"data": json.loads(data), "data_version": "3"})
    story.stored()
    answer = instance.http.get(f"/v1/tasks/{story.task}/resume", params={"knows": "2.1"}).content
    sent = orjson.dumps(story.raws[1]["data"]["data"]).replace(b"\\u0000", "\N{REPLACEMENT CHARACTER}".encode())
    assert b'"data":' + sent in answer
    schemas = {known: story.resume(knows=known)["checkpoint"]["schema"] for known in ("2.1", "3", "3.0", "4", "beta")}
    assert schemas == {"2.1": "newer", "3": "same", "3.0": "same", "4": "older", "beta": "other"}


def test_what_differs_in_the_configuration_is_told_by_the_names_that_the_caller_gives(instance: Instance) -> None:
    story = cut_off(instance).stored()
    plan = story.resume()["config"]["digests"]["plan"]
    config = {"model": "m2", "plan": plan, "tools": None, "system_prompt": None}
    changed = story.resume(config=json.dumps(config))["config"]["changed_since"]
    assert changed == [
        {"what": "model", "before": "m1", "after": "m2"}, {"what": "system_prompt", "before": "p1", "after": None},
    ]  # fmt: skip
    found = story.resume(config=json.dumps({"model": "m0"}))
    assert found["approvals"][0]["changed"] == [], "asked under what the caller has"


def test_steps_after_the_end_are_visible_and_undo_nothing(instance: Instance) -> None:
    """C15, C41: an abort through the API is the run's end; what comes later is late."""
    story = cut_off(instance).add("run.terminated", {"reason": "interrupt"}, source="console")
    story.add("run.terminated", {"reason": "end_turn"}).add("step.started", {"step": "look"})
    story.add("workbench.updated", {"observations": ["too late"]}).stored()
    found = story.resume()
    assert (found["status"], found["reason"], found["totals"]["late"]) == ("interrupted", "interrupt", 3)
    assert [step["status"] for step in found["finished_steps"]] == ["completed"]
    assert found["workbench"]["observations"] == []
    listed = instance.http.get(f"/v1/runs/{story.run}/events", params={"limit": 500}).json()["items"]
    assert [one["data"]["reason"] for one in listed if one["type"] == "run.terminated"] == ["interrupt", "end_turn"]


def test_a_sub_agent_hands_its_parent_a_result_whichever_is_known_first(instance: Instance) -> None:
    """C14: child before parent, and parent before child."""
    pairs = []
    for child_first in (True, False):
        parent, child = Story(instance), Story(instance)
        parent.add("run.started", {"goal": "write a report"})
        child.add("run.started", {"goal": "look it up", "parent_run": parent.run})
        child.add("run.terminated", {"reason": "end_turn", "result": {"answer": 42}})
        for story in (child, parent) if child_first else (parent, child):
            story.stored()
        until(lambda: (parent.resume()["children"] or [{}])[0].get("result"))  # noqa: B023
        pairs.append((parent, child))
    for parent, child in pairs:
        (found,) = parent.resume()["children"]
        assert (found["task"], found["status"], found["goal"]) == (child.task, "completed", "look it up")
        assert (found["result"], found["parent_run"]) == ({"answer": 42}, parent.run)
        assert instance.http.get(f"/v1/tasks/{parent.task}").json()["children"] == [found]
        assert child.resume()["children"] == []


def test_the_page_names_what_to_do(instance: Instance) -> None:
    story = cut_off(instance, session=instance.name("session")).stored()
    story.resume()
    page = refold("resume", story.task, REFOLD_DATA=str(instance.data), COLUMNS="200").stdout.decode()
    for words in ("check before repeating", "k3", "Never repeat", "40 to pay", "a receipt is wanted", "engaged",
                  "verify again", "stale", "approval a1", "m0", "attempt 2"):  # fmt: skip
        assert words in page, words
    missing = instance.refold("resume", "nobody")
    assert (missing.returncode, missing.stderr) == (1, b"refold: nothing saved for task 'nobody'\n")


# --- a task as a file --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Another instance to import into."""
    with running_instance(tmp_path_factory.mktemp("other") / "data") as running:
        yield running


def exported(instance: Instance, task: str, path: Path) -> Path:
    done = instance.refold("task", "export", task)
    assert done.returncode == 0, done.stderr
    path.write_bytes(done.stdout)
    return path


def test_an_exported_task_is_the_same_where_it_is_imported(instance: Instance, other: Instance, tmp_path: Path) -> None:
    story = cut_off(instance, session=instance.name("session"), user="u")
    story.add("run.terminated", {"reason": "interrupt"}).stored()
    until(lambda: instance.http.get(f"/v1/runs/{story.run}/settlement").status_code == 200)
    file = exported(instance, story.task, tmp_path / "task.jsonl")
    first = other.refold("task", "import", str(file), "--json")
    assert first.returncode == 0, first.stderr + first.stdout
    outcomes = json.loads(first.stdout)["outcomes"]
    assert set(outcomes) <= {"stored", "duplicate"} and outcomes["stored"] >= len(story.raws)
    again = json.loads(other.refold("task", "import", str(file), "--json").stdout)["outcomes"]
    assert set(again) == {"duplicate"}

    def state(of: Instance) -> dict[str, Any]:
        found: dict[str, Any] = of.http.get(f"/v1/tasks/{story.task}/resume").json()
        return {name: value for name, value in found.items() if name not in ("position", "read")}

    def without_positions(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_positions(item) for name, item in value.items() if name != "position"}
        return [without_positions(item) for item in value] if isinstance(value, list) else value

    assert without_positions(state(instance)) == without_positions(state(other))


def test_a_file_that_is_not_whole_is_refused_and_nothing_of_it_is_taken(
    instance: Instance, other: Instance, tmp_path: Path
) -> None:
    story = cut_off(instance).stored()
    file = exported(instance, story.task, tmp_path / "cut.jsonl")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    done = other.refold("task", "import", str(file))
    assert (done.returncode, b"it was cut off" in done.stderr) == (2, True), done.stderr
    assert other.http.get(f"/v1/tasks/{story.task}").status_code == 404


def test_another_task_of_the_same_name_is_not_mixed_with_it(
    instance: Instance, other: Instance, tmp_path: Path
) -> None:
    story = cut_off(instance).stored()
    file = exported(instance, story.task, tmp_path / "task.jsonl")
    stranger = Story(other, story.task)
    stranger.run = "stranger"
    stranger.add("run.started", {"goal": "something else"}).stored()
    done = other.refold("task", "import", str(file))
    assert done.returncode == 1
    assert "already here" in done.stderr.decode() and "'stranger'" in done.stderr.decode()
    assert other.http.get(f"/v1/tasks/{story.task}").json()["totals"]["events"] == 1


def test_a_task_that_went_on_differently_in_the_same_run_is_not_mixed_with_it(
    instance: Instance, other: Instance, tmp_path: Path
) -> None:
    """Nor one without any run. One that only went on, on either side, is no other."""
    story = cut_off(instance).stored()
    file = exported(instance, story.task, tmp_path / "task.jsonl")
    assert other.refold("task", "import", str(file)).returncode == 0
    there = Story(other, story.task)
    there.run = story.run
    there.add("note.written", {"key": "only", "content": "there"}).stored()
    assert other.refold("task", "import", str(file)).returncode == 0
    story.raws.clear()
    story.add("note.written", {"key": "only", "content": "here"}).stored()
    exported(instance, story.task, file)
    done = other.refold("task", "import", str(file))
    assert done.returncode == 1 and "note.written at" in done.stderr.decode(), done.stderr
    notes = other.http.get(f"/v1/tasks/{story.task}").json()["notes"]
    assert [note["content"] for note in notes if note["note"] == "only"] == ["there"]


def test_bytes_that_are_no_text_are_refused_by_name(instance: Instance) -> None:
    for arguments in (["resume", "a\udcff"], ["task", "a", "--at", "\udcff"]):
        done = instance.refold(*arguments)
        assert (done.returncode, b"is no UTF-8 text" in done.stderr) == (2, True), done.stderr
