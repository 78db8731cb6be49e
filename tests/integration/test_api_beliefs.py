"""Beliefs over HTTP and by the commands: at a moment, in pages, and down to the events that they stand on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from services.cli.beliefs import beliefs
from services.cli.errors import CliError
from tests.instance import Instance, refold, running_instance

DAY = "2026-03-{:02}T10:00:00Z"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("beliefs") / "data") as running:
        yield running


def learn(instance: Instance, agent: str, user: str) -> None:
    """Ten days on which a tool works, two on which it fails for good; and a wish that is said in three sessions."""
    raws: list[dict[str, Any]] = [experience(agent, f"{agent}-{day}", day, "success") for day in range(1, 11)]
    raws += [experience(agent, f"{agent}-{day}", day, "fatal_failure") for day in (11, 12)]
    wishes = ("Only the conclusion, please", "only the conclusion please", "Ｏnly the conclusion, please!")
    for n, words in enumerate(wishes, 1):
        members = {"user": user, "session": f"{user}-s{n}", "time": DAY.format(n), "data": {"text": words, "by": user}}
        raws.append({"id": f"{user}-{n}", "type": "feedback.given", **members})
    for raw in raws:
        raw.setdefault("source", "test")
    answer = instance.http.post("/v1/events", json=raws).json()
    assert {one["status"] for one in answer["outcomes"]} == {"stored"}, answer
    for whose, last in (({"agent": agent}, 11), ({"user": user}, -1)):
        after = {"after": answer["outcomes"][last]["token"]}
        assert instance.http.get("/v1/beliefs", params=whose | after).json()["read"]["reached"]


def experience(agent: str, run: str, day: int, label: str) -> dict[str, Any]:
    fatal = [{"tool": "book", "pattern": "unavailable~00aa11bb", "context": f"c{day}"}] if "fatal" in label else []
    data = {
        "run": run, "deriver_version": 1, "scope": "agent", "counts": [{"tool": "book", "label": label, "count": 1}],
        "path": "search > book", "path_label": label, "fatal": fatal,
    }  # fmt: skip
    return {"id": f"e-{run}", "type": "experience.recorded", "agent": agent, "time": DAY.format(day), "data": data}


def test_beliefs_at_a_moment_in_pages_and_why(instance: Instance) -> None:
    """C31, C47."""
    agent, user = instance.name("counter"), instance.name("ada")
    learn(instance, agent, user)

    def book(at: str) -> dict[str, Any]:
        found = instance.http.get("/v1/beliefs/tool%2Fbook", params={"agent": agent, "at": at})
        assert found.status_code == 200, found.text
        return dict(found.json())

    good, down, later = book("2026-03-10"), book("2026-03-12T12:00:00Z"), book("2026-06-01")
    assert (good["status"], good["supports"], good["against"]) == ("active", 10, 0)
    assert (down["status"], down["failures_in_a_row"], down["against"]) == ("candidate", 2, 2)
    assert good["confidence"] > down["confidence"] > later["confidence"] > 0.5
    assert [day["day"] for day in down["days"]] == [f"2026-03-{n:02}" for n in range(1, 13)]

    pages = instance.http.get("/v1/beliefs/tool%2Fbook/evidence", params={"agent": agent, "limit": 7}).json()
    rest = instance.http.get(
        "/v1/beliefs/tool%2Fbook/evidence", params={"agent": agent, "limit": 7, "cursor": pages["next_cursor"]}
    ).json()
    assert rest["next_cursor"] is None
    told = [one["event_id"] for one in [*pages["items"], *rest["items"]]]
    assert told == [f"e-{agent}-{day}" for day in range(12, 0, -1)]
    (event,) = instance.http.get(f"/v1/events/{told[0]}").json()["items"]
    assert (event["type"], event["data"]["run"]) == ("experience.recorded", f"{agent}-12")
    assert instance.http.get(f"/v1/events/{told[0]}", headers={"x-refold-org": "other"}).status_code == 404

    listed = instance.http.get("/v1/beliefs", params={"agent": agent, "status": "candidate"}).json()
    assert {one["kind"] for one in listed["items"]} == {"tool_reliability", "plan_pattern"}
    noticed = instance.http.get("/v1/notices", params={"agent": agent}).json()
    assert [(one["standing"], one["contexts"]) for one in noticed["items"]] == [("notice", 2)]
    assert noticed["next_cursor"] is None
    assert len(instance.http.get("/v1/experiences", params={"agent": agent}).json()["items"]) == 12
    for wrong in ({"at": "yesterday"}, {"at": "2026-03-01T10:00:00"}, {"status": "sure"}):
        assert instance.http.get("/v1/beliefs", params={"agent": agent, **wrong}).status_code == 422


def test_beliefs_come_in_pages_of_one_moment(instance: Instance) -> None:
    """C38: none twice, none left out, though beliefs weigh less at the second page than at the first."""
    agent, user = instance.name("counter"), instance.name("ada")
    learn(instance, agent, user)
    whole = instance.http.get("/v1/beliefs", params={"agent": agent, "at": "2026-03-12"}).json()
    confidences = [one["confidence"] for one in whole["items"]]
    assert confidences == sorted(confidences, reverse=True) and len(confidences) >= 2
    items: list[dict[str, Any]] = []
    params: dict[str, str | int] = {"agent": agent, "at": "2026-03-12", "limit": 1}
    while True:
        page = instance.http.get("/v1/beliefs", params=params).json()
        items += page["items"]
        if page["next_cursor"] is None:
            break
        params = {"agent": agent, "limit": 1, "cursor": page["next_cursor"]}
    assert items == whole["items"]


def test_beliefs_of_two_users_of_one_agent_never_touch(instance: Instance) -> None:
    agent, user = instance.name("counter"), instance.name("ada")
    learn(instance, agent, user)
    (wish,) = instance.http.get("/v1/beliefs", params={"user": user}).json()["items"]
    assert (wish["status"], wish["supports"], wish["statement"]) == ("active", 3, "Only the conclusion, please")
    other = {"user": f"{user}-2"}
    assert instance.http.get("/v1/beliefs", params=other).json()["items"] == []
    path = f"/v1/beliefs/{quote(wish['belief'], safe='')}"
    assert instance.http.get(path, params={"user": user}).json()["evidence"]
    assert instance.http.get(path, params=other).status_code == 404
    assert instance.http.get(f"{path}/evidence", params=other).json()["items"] == []
    assert all("conclusion" not in one["statement"] for one in instance.http.get(
        "/v1/beliefs", params={"agent": agent}).json()["items"])  # fmt: skip


def test_the_commands_tell_beliefs_and_why(instance: Instance) -> None:
    agent, user = instance.name("counter"), instance.name("ada")
    learn(instance, agent, user)
    where = ("--agent", agent, "--data", str(instance.data))
    people = refold("beliefs", *where, "--at", "2026-03-10", COLUMNS="160").stdout.decode()
    assert "█" in people
    assert "book worked 10 of 10 times" in people
    warned = refold("beliefs", *where, COLUMNS="160").stdout.decode()
    assert "confirm first" in warned
    why = instance.refold("belief", "tool/book", "--agent", agent, "--why").stdout.decode()
    assert f"e-{agent}-12" in why
    assert "1 fatal failure" in why
    with pytest.raises(CliError, match="give one of"):
        beliefs(agent, org=True)
