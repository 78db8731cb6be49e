"""Dead letters over HTTP and on the command line: list, show, retry, discard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from events.archive.schema import event_log
from events.database import Stores
from tests.instance import Instance, environment, running_instance, until


@dataclass
class Sick:
    """An instance with a projection that cannot fold some events until it is cured."""

    instance: Instance
    cure: Path

    def poison(self, run: str) -> list[str]:
        """Publish a note that cannot be folded and one that waits for it; the event ids."""
        key = {"key": "k"}
        events = [
            self.instance.event(run, "note.written", {**key, "content": content}) for content in ("poison", "after it")
        ]
        self.instance.stored(*events)
        return [event["id"] for event in events]

    def letters(self, run: str) -> list[dict[str, Any]]:
        items = self.instance.http.get("/v1/deadletters", params={"projection": "fussy"}).json()["items"]
        return [one for one in items if one["key"] == f"task/{run}"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sick]:
    folder = tmp_path_factory.mktemp("sick")
    cure = folder / "cure"
    registry = "tests.integration.poison_registry:PROJECTIONS"
    with running_instance(folder / "data", REFOLD_PROJECTIONS=registry, REFOLD_TEST_CURE=str(cure)) as instance:
        yield Sick(instance, cure)


@pytest.fixture
def sick(shared: Sick) -> Iterator[Sick]:
    """The instance, sick again; afterwards nothing stands still."""
    shared.cure.unlink(missing_ok=True)
    yield shared
    shared.cure.write_text("")
    answer = shared.instance.http.post("/v1/deadletters/retry", params={"projection": "fussy"})
    assert answer.json()["state"] == "folded", answer.text


def test_list_show_retry_and_discard(sick: Sick) -> None:
    instance, run, healthy = sick.instance, sick.instance.name(), sick.instance.name()
    ids = sick.poison(run)
    instance.stored(instance.event(healthy, "note.written", {"key": "k", "content": "fine"}))
    letters = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    assert [(one["event_id"], one["cause"]) for one in letters] == [(ids[0], "poison"), (ids[1], "waiting")]
    assert not sick.letters(healthy)
    shown = instance.http.get(f"/v1/deadletters/{letters[0]['id']}").json()
    assert "cannot stomach this" in shown["traceback"]
    assert shown["event"]["data"]["content"] == "poison"
    other = {"x-refold-org": "other"}
    assert instance.http.get(f"/v1/deadletters/{letters[0]['id']}", headers=other).status_code == 404

    listed = instance.refold("deadletters", "list", "--json")
    assert [json.loads(line)["event_id"] for line in listed.stdout.splitlines()] == ids
    assert b"cannot stomach this" in instance.refold("deadletters", "show", letters[0]["id"]).stdout

    for command in (["status"], ["rebuild", "fussy", "--allow-dead-letters"]):
        assert b"2 dead letters: see `refold deadletters list`" in instance.refold(*command).stdout, command
    assert b"dead letter" not in instance.refold("verify", "task_state").stdout

    failed = instance.refold("deadletters", "retry", letters[0]["id"])
    assert failed.returncode == 1
    sick.cure.write_text("")
    folded = instance.refold("deadletters", "retry", letters[0]["id"], "--json")
    assert (folded.returncode, json.loads(folded.stdout)["folded"]) == (0, 2)
    assert not sick.letters(run)
    gone = instance.refold("deadletters", "show", letters[0]["id"])
    assert gone.returncode == 1
    assert gone.stderr.count(b"\n") == 1


def test_filters_pages_and_walls(sick: Sick) -> None:
    instance, runs = sick.instance, [sick.instance.name() for _ in range(3)]
    for run in runs:
        sick.poison(run)
    until(lambda: all(len(sick.letters(run)) == 2 for run in runs))

    def listed(**chosen: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = instance.http.get("/v1/deadletters", params={**chosen, **cursor}).json()
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}

    whole = listed()
    assert len(whole) == 6
    assert all(listed(limit=str(limit)) == whole for limit in (1, 2, 4, 6))
    assert {one["key"] for one in listed(key=f"task/{runs[0]}")} == {f"task/{runs[0]}"}
    assert [one["cause"] for one in listed(cause="waiting")] == ["waiting"] * 3
    assert [one["cause"] for one in listed(waiting="false")] == ["poison"] * 3
    assert (len(listed(type="note.written")), listed(type="step.started")) == (6, [])
    assert instance.http.get("/v1/deadletters", params={"projection": "nothing"}).status_code == 404
    assert instance.http.get("/v1/deadletters", params={"cause": "nothing"}).status_code == 422
    shown = instance.refold("deadletters", "list", "--causes", "--key", f"task/{runs[1]}", "--json")
    assert [json.loads(line)["cause"] for line in shown.stdout.splitlines()] == ["poison"]

    other = {"x-refold-org": "other"}
    assert instance.http.get("/v1/deadletters", headers=other).json()["items"] == []
    for act in ("retry", "discard"):
        assert instance.http.post(f"/v1/deadletters/{whole[0]['id']}/{act}", headers=other).status_code == 404
    sick.cure.touch()
    of_all = instance.http.post("/v1/deadletters/retry", params={"projection": "fussy"}, headers=other).json()
    assert (of_all["state"], of_all["folded"]) == ("folded", 0)
    assert listed() == whole


def test_everything_of_a_projection_is_retried_at_once(sick: Sick) -> None:
    instance, runs = sick.instance, [sick.instance.name() for _ in range(3)]
    for run in runs:
        sick.poison(run)
    until(lambda: all(len(sick.letters(run)) == 2 for run in runs))
    failed = instance.refold("deadletters", "retry", "--projection", "fussy")
    assert failed.returncode == 1
    assert b"0 events folded, 6 dead letters left" in failed.stdout
    assert failed.stdout.count(b"ValueError: cannot stomach this") == 3
    sick.cure.touch()
    of_one = {"projection": "fussy", "key": f"task/{runs[0]}"}
    assert instance.http.post("/v1/deadletters/retry", params=of_one).json()["folded"] == 2
    gone = instance.http.post("/v1/deadletters/retry", params=of_one)
    assert (gone.status_code, gone.json()["code"]) == (404, "no_dead_letter")
    rest = json.loads(instance.refold("deadletters", "retry", "--projection", "fussy", "--json").stdout)
    assert (rest["state"], rest["keys"], rest["folded"], rest["letters_left"]) == ("folded", 2, 4, 0)
    assert not any(sick.letters(run) for run in runs)
    assert instance.refold("deadletters", "retry").returncode == 2


def test_an_event_that_kills_its_retry_kills_nothing_else(sick: Sick) -> None:
    """C7: the process of the retry ends, the instance and the dead letters stay as they were."""
    instance, run = sick.instance, sick.instance.name()
    sick.poison(run)
    before = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    sick.cure.write_text("die")
    died = instance.http.post(f"/v1/deadletters/{before[0]['id']}/retry")
    assert (died.status_code, died.json()["code"]) == (409, "retry_died")
    assert "ended with code 9" in died.json()["detail"] and f"task/{run}" in died.json()["detail"]
    assert sick.letters(run) == before
    assert instance.process.poll() is None
    sick.cure.write_text("")
    assert instance.refold("deadletters", "retry", before[1]["id"]).returncode == 0
    assert not sick.letters(run)


def test_what_is_read_of_a_key_that_stands_still_says_that_it_is_incomplete(sick: Sick) -> None:
    """Over HTTP, on the command line and in the SDK; of that key, and of no other."""
    instance, behind, whole = sick.instance, sick.instance.name(), sick.instance.name()
    newer = instance.event(behind, "step.completed", {"step": "s"}, schemaversion=99)
    token = instance.stored(
        *(instance.event(run, "step.started", {"step": "s"}) for run in (behind, whole)), newer,
        instance.event(behind, "step.failed", {"step": "s", "error": "late"}),
    )  # fmt: skip
    said = {}
    for run in (behind, whole):
        for path in (f"/v1/tasks/{run}", f"/v1/tasks/{run}/resume"):
            document = instance.http.get(path, params={"after": token}).json()
            said[path] = (document["read"]["reached"], document["read"]["incomplete"])
        shown = instance.refold("task", run).stdout.decode()
        assert ("incomplete: an event could not be folded" in shown) is (run == behind), shown
    assert said == {
        f"/v1/tasks/{behind}": (True, True), f"/v1/tasks/{behind}/resume": (True, True),
        f"/v1/tasks/{whole}": (True, False), f"/v1/tasks/{whole}/resume": (True, False),
    }  # fmt: skip
    letters = instance.http.get("/v1/deadletters", params={"projection": "task_state", "key": f"task/{behind}"}).json()
    assert [one["cause"] for one in letters["items"]] == ["newer_version", "waiting"]
    code = f"import refold; refold.Refold({instance.url!r}).resume({behind!r})"
    resumed = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=100
    )
    assert "could not be folded: what is known of it is incomplete" in resumed.stderr
    instance.http.post(f"/v1/deadletters/{letters['items'][0]['id']}/discard", json={"reason": "a test"})
    until(lambda: not instance.http.get(f"/v1/tasks/{behind}").json()["read"]["incomplete"])


def test_an_event_that_is_no_json_is_shown_as_text(sick: Sick) -> None:
    """One that something else than append had put into the log, before such were set aside."""
    run = sick.instance.name()
    ids = sick.poison(run)
    letters = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    db = Stores(sick.instance.stores_url).log()
    try:
        db.write_now(lambda conn: conn.execute(update(event_log).where(event_log.c.id == ids[0]).values(data="{oops")))
    finally:
        db.close()
    shown = sick.instance.http.get(f"/v1/deadletters/{letters[0]['id']}")
    assert (shown.status_code, shown.json()["event"]["data"]) == (200, "{oops")
    sick.instance.http.post(f"/v1/deadletters/{letters[0]['id']}/discard", json={})
    until(lambda: not sick.letters(run))


def test_a_discard_is_an_event_and_a_rebuild_agrees(sick: Sick) -> None:
    instance, run = sick.instance, sick.instance.name()
    ids = sick.poison(run)
    letters = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    done = instance.http.post(f"/v1/deadletters/{quote(letters[0]['id'])}/discard", json={"reason": "a test"}).json()
    assert done["state"] == "discarded"
    until(lambda: not sick.letters(run))
    sick.cure.write_text("")  # now it could be folded, but a person decided
    rebuilt = instance.refold("rebuild", "fussy", "--json")
    assert json.loads(rebuilt.stdout)["state"] == "done", rebuilt.stdout
    assert not sick.letters(run)
    verified = instance.refold("verify", "fussy", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["equal"]) == (0, True)
    assert len(ids) == 2
