"""A wish that a user says three times in their own words is a rule of theirs: first and always, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.instance import Instance, running_instance, until

RULE = "Give the conclusion without the process"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("wishes") / "data") as running:
        yield running


def converse(instance: Instance, user: str, *words: str, **more: str) -> str:
    """A session of a user with an agent; its task."""
    name = instance.name()
    who = {"user": user, "agent": "analyst", "session": f"s-{name}", "task": f"t-{name}", **more}
    said = [instance.event(name, data={"role": "user", "content": each}, **who) for each in words]
    started = instance.event(name, "run.started", {"goal": "sum up the quarter"}, **who)
    assert instance.publish(started, *said).status_code == 200
    return who["task"]


def policy(instance: Instance, task: str) -> str:
    """The policy in a context of a task."""
    found = instance.http.post("/v1/context", json={"task": task, "query": "how did it go?", "parts": ["policy"]})
    assert found.status_code == 200, found.text
    return str(found.json())


def beliefs(instance: Instance, user: str) -> dict[str, tuple[str, int, int]]:
    found = instance.http.get("/v1/beliefs", params={"user": user}).json()["items"]
    return {one["statement"]: (one["status"], one["supports"], one["against"]) for one in found}


def test_the_fourth_context_carries_what_was_said_three_times(instance: Instance) -> None:
    """Said through messages, which memory hears too: each session counts once. The chain leads to the messages."""
    ada, bob = instance.name("ada"), instance.name("bob")
    converse(instance, ada, "just the bottom line, please", "and skip the reasoning")
    converse(instance, ada, "直接告诉我结论就行", time="2026-02-28T10:00:00Z")
    converse(instance, bob, "I want to see every step")
    until(lambda: beliefs(instance, ada).get(RULE) == ("candidate", 2, 0))
    third = converse(instance, ada, "Hi. Skip the reasoning, only the result.")
    until(lambda: beliefs(instance, ada).get(RULE) == ("active", 3, 0))
    fourth = converse(instance, ada, "How was March?")
    of_bob = converse(instance, bob, "How was March?")
    until(lambda: RULE in policy(instance, fourth))
    assert RULE in policy(instance, third)
    rules = instance.http.get("/v1/policy", params={"agent": "analyst", "user": ada}).json()["rules"]
    assert [(rule["statement"], rule["standing"]) for rule in rules[:1]] == [(RULE, True)]
    assert RULE not in policy(instance, of_bob)
    contradicted = converse(instance, ada, "How was April?")
    assert RULE in policy(instance, contradicted)  # told there, so a correction for once speaks against it
    run = contradicted.removeprefix("t-")
    who = {"user": ada, "agent": "analyst", "session": f"s-{run}", "task": contradicted}
    words = {"role": "user", "content": "no, explain it this time"}
    assert instance.publish(instance.event(run, data=words, **who)).status_code == 200
    until(lambda: beliefs(instance, ada).get(RULE) == ("candidate", 3, 1))
    reviewed(instance, ada)


def reviewed(instance: Instance, user: str) -> None:
    """Candidates are looked at again when somebody asks for it; no confidence changes."""
    before: Any = beliefs(instance, user)
    found = instance.refold("calibrate", "--now", "--json")
    assert found.returncode == 0, found.stderr
    counts = json.loads(found.stdout)
    assert counts["holds"] + counts["doubtful"] + counts["untouched"] >= 2
    assert beliefs(instance, user) == before
    when = json.loads(instance.refold("calibrate", "--json").stdout)
    assert when["last"] < when["next"]
