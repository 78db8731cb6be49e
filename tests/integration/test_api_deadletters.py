"""Dead letters over HTTP and on the command line: list, show, retry, discard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from events.archive.schema import event_log
from events.database import Stores
from tests.instance import Instance, running_instance, until


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


@pytest.fixture
def sick(tmp_path: Path) -> Iterator[Sick]:
    cure = tmp_path / "cure"
    registry = "tests.integration.poison_registry:PROJECTIONS"
    with running_instance(tmp_path / "data", REFOLD_PROJECTIONS=registry, REFOLD_TEST_CURE=str(cure)) as instance:
        yield Sick(instance, cure)


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

    for command in (["status"], ["verify", "fussy"], ["rebuild", "fussy"]):
        assert b"2 dead letters: see `refold deadletters list`" in instance.refold(*command).stdout, command
    assert b"dead letter" not in instance.refold("verify", "task_state").stdout

    failed = instance.refold("deadletters", "retry", letters[0]["id"])
    assert failed.returncode == 1
    sick.cure.touch()
    folded = instance.refold("deadletters", "retry", letters[0]["id"], "--json")
    assert (folded.returncode, json.loads(folded.stdout)["folded"]) == (0, 2)
    assert not sick.letters(run)
    gone = instance.refold("deadletters", "show", letters[0]["id"])
    assert gone.returncode == 1
    assert gone.stderr.count(b"\n") == 1


def test_an_event_that_is_no_json_is_shown_as_text(sick: Sick, tmp_path: Path) -> None:
    """One that something else than append had put into the log, before such were set aside."""
    run = sick.instance.name()
    ids = sick.poison(run)
    letters = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    db = Stores(f"sqlite:///{tmp_path / 'data' / 'db'}").log()
    try:
        db.write_now(lambda conn: conn.execute(update(event_log).where(event_log.c.id == ids[0]).values(data="{oops")))
    finally:
        db.close()
    shown = sick.instance.http.get(f"/v1/deadletters/{letters[0]['id']}")
    assert (shown.status_code, shown.json()["event"]["data"]) == (200, "{oops")


def test_a_discard_is_an_event_and_a_rebuild_agrees(sick: Sick) -> None:
    instance, run = sick.instance, sick.instance.name()
    ids = sick.poison(run)
    letters = until(lambda: len(sick.letters(run)) == 2 and sick.letters(run))
    done = instance.http.post(f"/v1/deadletters/{quote(letters[0]['id'])}/discard", json={"reason": "a test"}).json()
    assert done["state"] == "discarded"
    until(lambda: not sick.letters(run))
    rebuilt = instance.refold("rebuild", "fussy", "--json")
    assert json.loads(rebuilt.stdout)["state"] == "done", rebuilt.stdout
    assert not sick.letters(run)
    verified = instance.refold("verify", "fussy", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["equal"]) == (0, True)
    assert len(ids) == 2
