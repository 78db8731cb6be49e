"""Cards over HTTP and on the command line: why they exist, their graph, and verdicts that can be taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.instance import Instance, running_instance

KEY = "sk-" + "xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("cards") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def task(instance: Instance) -> str:
    """A small run with a search, a quote that expires, a booking, and a tool that prints a key."""
    run = instance.name("trip")
    parts: list[tuple[str, dict[str, Any]]] = [
        ("run.started", {"goal": "a trip", "mode": "precise_planning"}),
        ("message.added", {"role": "user", "content": "I need to get from Lisbon to Oslo"}),
        ("tool.called", {"call_id": "c1", "name": "search", "arguments": {"from": "Lisbon"}}),
        ("tool.returned", {"call_id": "c1", "result": {"trip_id": "TR-417", "price": 152}}),
        ("tool.called", {"call_id": "c2", "name": "quote", "arguments": {"trip": "TR-417"}}),
        ("tool.returned", {"call_id": "c2", "result": {"quote_id": "Q-7781", "expires_in": 0}}),
        ("tool.called", {"call_id": "c3", "name": "conf", "arguments": {"path": "a/b"}}),
        ("tool.returned", {"call_id": "c3", "result": f"api_key: {KEY}\nregion: eu-north-1\n"}),
    ]
    events = [instance.event(run, kind, data) for kind, data in parts]
    instance.http.get("/v1/cards", params={"task": run, "after": instance.stored(*events)})
    return run


def cards(instance: Instance, task: str, status: str = "") -> dict[str, Any]:
    """What a tool's cards are, by tool; ``user`` for what was said."""
    found = instance.http.get("/v1/cards", params={"task": task, "status": status}).json()["items"]
    return {one.get("tool") or one["source"]: one for one in found}


def test_a_card_tells_why_it_exists_and_what_it_led_to(instance: Instance, task: str) -> None:
    found = cards(instance, task)
    card = instance.http.get(f"/v1/cards/{found['search']['card']}").json()
    assert card["why"] == ["used by 1 later call or decision", "told something new"]
    assert card["refresh"] == "look again before relying on price"
    assert card["facts"] == [["trip_id", "", "TR-417"], ["price", "", "152"]]
    graph = instance.http.get(f"/v1/cards/{found['user']['card']}/graph", params={"depth": 2}).json()
    ends = {(edge["from"], edge["to"]) for edge in graph["edges"]}
    assert ends == {
        (found["user"]["card"], found["search"]["card"]), (found["search"]["card"], found["quote"]["card"]),
    }  # fmt: skip
    assert graph["read"]["reached"]
    elsewhere = {"x-refold-org": "other"}
    for path in ("", "/graph", "/raw"):
        answer = instance.http.get(f"/v1/cards/{found['user']['card']}{path}", headers=elsewhere)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_card")
    assert instance.http.get(f"/v1/cards/{found['user']['card']}/graph", params={"depth": 99}).status_code == 422


def test_a_time_that_is_over_is_seen_at_the_read(instance: Instance, task: str) -> None:
    assert list(cards(instance, task, "expired")) == ["quote"]
    assert "quote" not in cards(instance, task, "active")
    assert cards(instance, task)["quote"]["status"] == "expired"


def test_a_secret_stays_in_the_original(instance: Instance, task: str) -> None:
    """C21."""
    card = cards(instance, task)["conf"]
    document = instance.http.get(f"/v1/cards/{card['card']}").text
    assert "AAAA1111" not in document
    assert "[masked]" in document
    rows = instance.http.get("/v1/projections/memory_cards/tables/cards", params={"limit": 500}).text
    assert "AAAA1111" not in rows
    assert KEY in instance.http.get(f"/v1/cards/{card['card']}/raw").json()["data"]["result"]


def test_a_verdict_is_an_event_and_can_be_taken_back(instance: Instance, task: str) -> None:
    card = cards(instance, task)["search"]["card"]
    said = instance.http.post(f"/v1/cards/{card}/invalidate", json={"reason": "another route", "by": "ada"}).json()
    document = instance.http.get(f"/v1/cards/{card}", params={"after": said["token"]}).json()
    assert (document["status"], document["invalidated_by"]) == ("invalidated", said["event"])
    assert list(cards(instance, task, "invalidated")) == ["search"]
    shown = instance.refold("card", card).stdout.decode()
    assert "because\tanother route, by ada, " in shown, shown
    done = instance.refold("card", card, "--restore", "it is the route after all", "--json")
    assert json.loads(done.stdout)["status"] == "active"
    elsewhere = {"x-refold-org": "other"}
    for verdict in ("invalidate", "restore"):
        answer = instance.http.post(f"/v1/cards/{card}/{verdict}", json={}, headers=elsewhere)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_card")
    verified = instance.refold("verify", "memory_cards", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["equal"]) == (0, True)


def test_the_command_line_shows_cards_and_one_card(instance: Instance, task: str) -> None:
    listed = instance.refold("cards", "--task", task, "--status", "any").stdout.decode().splitlines()
    assert listed[0].split("\t") == ["value", "used", "card", "from", "status", "summary"]
    assert len(listed) == 5
    card = cards(instance, task)["search"]["card"]
    shown = instance.refold("card", card).stdout.decode()
    for line in ("used by 1 later call or decision", "trip_id → trip: TR-417", "made with values of", "led to"):
        assert line in shown, shown
    original = json.loads(instance.refold("card", card, "--original").stdout)
    assert original["data"]["result"]["trip_id"] == "TR-417"
    wrong = instance.refold("cards", "--task", task, "--status", "green")
    assert (wrong.returncode, wrong.stderr.count(b"\n")) == (2, 1)
    assert instance.refold("card", "nobody").returncode == 1
    assert instance.refold("card", card, "--original", "--restore", "x").returncode == 2
