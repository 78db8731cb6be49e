"""Searching as a user does: over HTTP and from the command line, by words and by meaning; benches on small data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refold import Refold

from services.cli import search as command
from tests.instance import WITH_MODEL, Instance, refold, running_instance, until


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("search") / "data", **WITH_MODEL) as running:
        yield running


@pytest.fixture(scope="module")
def user(instance: Instance) -> str:
    """A user with a run of a tool, two sentences, and a rival in another org who says the same words and more."""
    user, run = instance.name("user"), instance.name()
    result = {"flight_number": "HAT136", "price": 1200, "airport": "LaGuardia"}
    told = [
        ("tool.called", {"call_id": "c1", "name": "search_flights", "arguments": {"from": "JFK"}}),
        ("tool.returned", {"call_id": "c1", "result": result}),
        ("message.added", {"role": "user", "content": "I live in Shanghai, near the café Müller"}),
        ("message.added", {"role": "user", "content": "我喜欢靠窗的座位"}),
        ("decision.made", {"chosen": "book HAT136", "question": "which flight"}),
    ]
    events = [instance.event(run, kind, data, user=user, agent="clerk") for kind, data in told]
    token = instance.stored(*events)
    rival = instance.event(run, data={"role": "user", "content": "HAT136 Shanghai 座位 1200"}, user=user)
    instance.http.post("/v1/events", json=[rival], headers={"X-Refold-Org": "rival"}).raise_for_status()
    assert search(instance, "", user=user, after=token)["read"]["reached"]
    return user


def search(instance: Instance, query: str, **body: Any) -> dict[str, Any]:
    response = instance.http.post("/v1/cards/search", json={"query": query, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def first(answer: dict[str, Any]) -> str:
    return str(answer["items"][0]["summary"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("HAT136", "HAT136"),
        ("hat136 1,200", "1200"),
        ("座位", "座位"),
        ("CAFE MULLER", "café"),
        ("ｃａｆｅ\u0301 müller", "café"),
        ('C:\\repo\\a|b (x:y) "Shanghai" @z -not * ~ AND', "Shanghai"),
        ("Shanghai " + "x" * 100_000, "Shanghai"),
    ],
)
def test_words_find_cards(instance: Instance, user: str, query: str, found: str) -> None:
    """C19, C31; two characters of Chinese; a query of 100 KB."""
    answer = search(instance, query, user=user, explain=True)
    assert found in first(answer)
    best = answer["items"][0]
    assert sum(best["signals"].values()) == pytest.approx(best["score"], abs=1e-9)


def test_meaning_finds_cards_across_languages(instance: Instance, user: str) -> None:
    told = "I prefer sitting next to the window"
    until(lambda: (found := search(instance, told, user=user))["items"] and "靠窗" in first(found))
    assert search(instance, told, user=user)["embedding"]["model"] == "use-multilingual"


def test_filters_pages_and_focus(instance: Instance, user: str) -> None:
    only = search(instance, "", user=user, filter={"not": {"source": ["user", "decision"]}, "values": "HAT136"})
    assert [item["tool"] for item in only["items"]] == ["search_flights"]
    page = search(instance, "", user=user, top_k=2)
    rest = search(instance, "", user=user, top_k=100, cursor=page["next_cursor"])
    whole = search(instance, "", user=user, top_k=100)
    assert [item["card"] for item in page["items"] + rest["items"]] == [item["card"] for item in whole["items"]]
    assert (page["total"], rest["next_cursor"]) == (len(whole["items"]), None)
    assert first(search(instance, "", user=user, focus="which flight")) == only["items"][0]["summary"]
    by_words = instance.http.get("/v1/cards/search", params={"q": "HAT136", "user": user}).json()
    assert "HAT136" in first(by_words)


def test_agents_search_with_the_sdk(instance: Instance, user: str) -> None:
    path = "/v1/cards/search"
    with Refold(instance.url) as client:
        (found,) = client.get(path, q="1,200", user=user, filter='{"source": "tool"}', explain=True)["items"]
        assert found["tool"] == "search_flights" and found["signals"]
        assert client.get(path, user=user, as_of="2020-01-01T00:00:00Z")["items"] == []
    wrong = instance.http.get(path, params={"filter": "{"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_filter")


@pytest.mark.parametrize(
    ("body", "code", "where"),
    [
        ({"filter": {"or": [{"tool": "x"}, {"value": {"gte": "3"}}]}}, "bad_filter", "filter.or[1].value.gte"),
        ({"filter": {"colour": "red"}}, "bad_filter", "filter.colour"),
        ({"as_of": "2026-03-01T10:00:00"}, "naive_time", "as_of"),
        ({"threshold": 2}, "bad_parameter", "threshold"),
        ({"top_k": 0}, "bad_parameter", "top_k"),
        ({"status": "gone"}, "bad_parameter", "status"),
        ({"quer": "x"}, "bad_parameter", "quer"),
        ({"user": "a\0b"}, "bad_parameter", "user"),
        ({"cursor": "nonsense"}, "bad_cursor", "cursor"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(instance: Instance, body: dict[str, Any], code: str, where: str) -> None:
    response = instance.http.post("/v1/cards/search", json=body)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, code) and where in problem["detail"]


def test_a_cursor_of_another_search_is_refused(instance: Instance, user: str) -> None:
    cursor = search(instance, "", user=user, top_k=1)["next_cursor"]
    response = instance.http.post("/v1/cards/search", json={"query": "other", "user": user, "cursor": cursor})
    assert (response.status_code, response.json()["code"]) == (422, "bad_cursor")


def test_the_command_shows_a_table_and_why(instance: Instance, user: str) -> None:
    done = instance.refold("search", "HAT136", "--user", user, "--explain", "--top-k", "1")
    head, line = done.stdout.decode().splitlines()[:2]
    assert head.split("\t") == ["score", "why", "from", "as of", "card", "summary"] and "HAT136" in line
    as_json = instance.refold("search", "HAT136", "--user", user, "--filter", '{"source": "tool"}', "--json")
    assert [json.loads(one)["tool"] for one in as_json.stdout.splitlines()] == ["search_flights"]
    wrong = instance.refold("search", "x", "--filter", "{")
    assert wrong.returncode == 2 and b"--filter is no JSON" in wrong.stderr
    one = instance.refold("search", "HAT136", "--user", user, "--max-tokens", "20")
    assert b"a greater `--max-tokens` shows more" in one.stderr
    assert instance.refold("search", "nowhere", "--user", user, "--threshold", "1", "--json").stdout == b""


def test_the_command_asks_for_page_after_page(
    instance: Instance, user: str, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(command, "MOST", 1)
    command.search(user=user, top_k=3, url=instance.url, as_json=True)
    shown = [json.loads(line)["card"] for line in capsysbinary.readouterr().out.splitlines()]
    assert shown == [card["card"] for card in search(instance, "", user=user, top_k=3)["items"]] and len(shown) == 3


def test_the_bench_prints_recall_of_each_way(tmp_path: Path) -> None:
    turns = [("Ann", "I adopted a small dog called Rex"), ("Ben", "my sister paints boats"), ("Ann", "I moved to Oslo")]
    session = [{"speaker": who, "dia_id": f"D1:{n}", "text": text} for n, (who, text) in enumerate(turns, 1)]
    asked = [{"question": "Which pet does Ann have?", "evidence": ["D1:1"]}, {"question": "unanswerable"}]
    conversation = {"session_1": session, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    data = tmp_path / "locomo.json"
    data.write_text(json.dumps([{"conversation": conversation, "qa": asked}]))
    done = refold("bench", "retrieval", "--data", str(data), "--json")
    assert done.returncode == 0, done.stderr.decode()
    (part,) = json.loads(done.stdout)["parts"].values()
    assert part["questions"] == 1 and set(part["recall"]) == {"BM25", "dense", "fusion"}
    assert part["recall"]["fusion"]["recall@5"] == 1.0


def test_memories_and_experiences_are_found_by_meaning(instance: Instance) -> None:
    """The model compares, across languages; another user's are nowhere. The command shows them."""
    user, other, run = instance.name("user"), instance.name("user"), instance.name()
    for number, (whose, content) in enumerate(
        ((user, "I live in Oslo"), (user, "I drive a Volvo"), (other, "他住在上海"))
    ):
        data = {"content": content, "infer": False}
        instance.stored({"id": f"{user}-{number}", "type": "memory.proposed", "user": whose, "data": data})
    of = {"user": user, "agent": "clerk"}
    instance.stored(
        instance.event(run, "run.started", {"goal": "Refund an order that arrived broken"}, **of),
        instance.event(run, "tool.called", {"call_id": "c1", "name": "refund", "arguments": {}}, **of),
        instance.event(run, "tool.failed", {"call_id": "c1", "error": "gateway timed out"}, **of),
        instance.event(run, "run.terminated", {"reason": "error_streak"}, **of),
    )

    def found(path: str, query: str) -> list[dict[str, Any]]:
        answer = instance.http.get(path, params={"q": query, "user": user}).json()
        return list(answer["items"]) if answer["model"] else []

    until(lambda: found("/v1/memories/search", "他住在哪里"))
    assert [one["content"] for one in found("/v1/memories/search", "他住在哪里")] == ["I live in Oslo"]
    until(lambda: found("/v1/experiences/search", "退款"))
    (sheet,) = (one["sheet"] for one in found("/v1/experiences/search", "money back for damaged goods"))
    assert sheet["cause"].endswith("gateway timed out")
    assert found("/v1/experiences/search", "gardening") == []
    shown = instance.refold("experiences", "--user", user, "-q", "timed out")
    assert shown.returncode == 0 and b"Refund an order" in shown.stdout, shown.stderr
    theirs = instance.http.get("/v1/experiences/search", params={"q": "refund", "user": other}).json()
    assert theirs["items"] == []
    agents = instance.http.get("/v1/experiences/search", params={"q": "refund", "agent": "clerk"}).json()["items"]
    assert agents and "arrived broken" not in json.dumps(agents)
