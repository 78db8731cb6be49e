"""One attempt at a time: whatever number of processes resume a task, one goes on, and no accepted update is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.nursery import Nursery
from tests.instance import Instance, running_instance
from tests.soak import ALL

MANY = 10 if ALL else 1


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("attempts") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


def race(
    instance: Instance, nursery: Nursery, folder: Path, task: str, racers: int, **how: Any
) -> list[dict[str, Any]]:
    """So many processes resume a task; what each of them reports."""
    folder.mkdir(parents=True)
    order = {"url": instance.url, "folder": str(folder), "task": task, "agent": "contender", **how}
    lives = [nursery.live(spool=str(folder / f"spool-{number}"), **order) for number in range(racers)]
    assert [nursery.end_of(life) for life in lives] == [0] * racers
    return [json.loads(report.read_text()) for report in folder.glob("report-*.json")]


def stored(instance: Instance, run: str) -> list[dict[str, Any]]:
    """Everything of a run that took effect."""
    answer = instance.http.get(f"/v1/runs/{run}/events", params={"limit": 500})
    items = answer.json()["items"] if answer.status_code == 200 else []
    return [item for item in items if item["verdict"] == "effective"]


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("racers", "rounds"), [(2, 5), (8, 2)])
def test_of_those_that_resume_at_the_same_instant_one_goes_on(
    instance: Instance, nursery: Nursery, tmp_path: Path, racers: int, rounds: int
) -> None:
    """All have read the same state; the others get a conflict at their first event, which names the winner."""
    task = instance.name("race")
    for round_ in range(1, rounds * MANY + 1):
        reports = race(
            instance, nursery, tmp_path / str(round_), task, racers, all_of_them=racers, updates=3 if round_ % 2 else 0
        )
        winners = [report for report in reports if not report["winner"]]
        losers = [report for report in reports if report["winner"]]
        assert (len(winners), len(losers)) == (1, racers - 1)
        assert {loser["winner"] for loser in losers} == {winners[0]["run"]}
        assert [stored(instance, loser["run"]) for loser in losers] == [[]] * len(losers), "not one event of theirs"
        assert [loser["accepted"] for loser in losers] == [0] * len(losers)
        document = instance.http.get(f"/v1/tasks/{task}").json()
        assert (document["attempt"], document["run"]) == (round_, winners[0]["run"])


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("racers", [4])
def test_no_accepted_update_is_lost_when_workers_take_a_task_from_one_another(
    instance: Instance, nursery: Nursery, tmp_path: Path, racers: int
) -> None:
    """Each takes over when it likes. What was accepted of anybody is stored, and what was not is not."""
    for round_ in range(MANY):
        task = instance.name("taken")
        reports = race(instance, nursery, tmp_path / str(round_), task, racers, all_of_them=1, updates=12)
        assert [report["accepted"] for report in reports if not report["winner"]].count(12) >= 1
        for report in reports:
            calls = [event for event in stored(instance, report["run"]) if event["type"] == "tool.called"]
            assert len(calls) == report["accepted"]
        document = instance.http.get(f"/v1/tasks/{task}").json()
        assert document["totals"]["calls"] == sum(report["accepted"] for report in reports)
        holder = next(report for report in reports if report["run"] == document["run"])
        assert not holder["winner"], "who holds the task in the end has lost it to nobody"


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_notes_that_many_write_with_an_expected_version_lose_no_update(instance: Instance) -> None:
    """Each adds one to what it read. Who read an older version is told, reads again, and tries again."""
    task, writers, each = instance.name("note"), 4, 3 * MANY
    told: list[dict[str, Any]] = []

    def add(http: httpx.Client, writer: int) -> None:
        """One more, however often that takes."""
        headers: dict[str, str] = {}
        while True:
            known = _note(http, task, headers)
            version, number = (known["version"], known["content"]["n"]) if known else (0, 0)
            mine = {"n": number + 1, "by": writer, "try": len(told)}
            data = {"key": "count", "content": mine, "expected_version": version}
            answer = http.post("/v1/events", json=[instance.event("", "note.written", data, task=task)])
            assert answer.json()["outcomes"][0]["status"] == "stored", answer.text
            headers = {"after": answer.json()["outcomes"][0]["token"]}
            document = http.get(f"/v1/tasks/{task}", params=headers).json()
            lost = [conflict for conflict in document["note_conflicts"] if conflict["content"] == mine]
            if not lost:
                return
            assert lost[0]["expected_version"] == version < lost[0]["found_version"]
            told.extend(lost)

    def work(writer: int) -> None:
        with httpx.Client(base_url=instance.url, timeout=30, trust_env=False) as http:
            for _ in range(each):
                add(http, writer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    document = instance.http.get(f"/v1/tasks/{task}").json()
    (note,) = document["notes"]
    assert (note["version"], note["content"]["n"]) == (writers * each, writers * each)
    assert document["totals"]["note_conflicts"] == len(told)


def _note(http: httpx.Client, task: str, after: dict[str, str]) -> dict[str, Any] | None:
    answer = http.get(f"/v1/tasks/{task}", params=after)
    notes = answer.json()["notes"] if answer.status_code == 200 else []
    return notes[0] if notes else None
