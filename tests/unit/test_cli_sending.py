"""Sending batches: an outcome for each event, whatever the instance answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from services.cli import sending
from services.cli.client import Client
from services.cli.errors import UNREACHABLE, CliError
from services.cli.sending import Line, Tally, batches, read_line, send

Answer = Callable[[list[Any]], httpx.Response]


class Instance(Client):
    """A client whose instance answers as told."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__("http://instance")
        self.answers = list(answers)
        self.asked: list[int] = []

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        events = json.loads(options["content"])
        self.asked.append(len(events))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        response = answer(events)
        response.request = httpx.Request(method, f"{self.url}{path}")
        return response


def stored(events: list[Any]) -> httpx.Response:
    return httpx.Response(200, json={"outcomes": [{"id": str(event), "status": "stored"} for event in events]})


def away(events: list[Any]) -> httpx.Response:
    return httpx.Response(503, json={"detail": "closed for a moment"})


def choking_on_3(events: list[Any]) -> httpx.Response:
    if 3 in events:
        return httpx.Response(400, json={"detail": "cannot read this"})
    return stored(events)


def lines(*texts: bytes) -> list[Line]:
    return [Line(text) for text in texts]


def test_batches_are_bounded_by_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "BATCH_EVENTS", 3)
    monkeypatch.setattr(sending, "BATCH_BYTES", 10)
    assert list(batches(lines(b"1", b"2", b"3", b"4"))) == [lines(b"1", b"2", b"3"), lines(b"4")]
    large = lines(b"x" * 6, b"y" * 6, b"z" * 20)
    assert list(batches(large)) == [[one] for one in large]
    assert list(batches([])) == []


def test_a_body_that_is_refused_whole_is_halved_until_the_culprit_stands_alone() -> None:
    client = Instance(choking_on_3)
    outcomes = send(client, lines(b"1", b"2", b"3", b"4", b"5"), ack="durable", waiting=lambda why: None)
    assert [one["status"] for one in outcomes] == ["stored", "stored", "refused", "stored", "stored"]
    assert outcomes[2]["message"] == "cannot read this"


def test_a_line_that_is_no_json_is_refused_in_its_place_and_harms_no_other() -> None:
    client = Instance(stored)
    texts = [b"1", b"not json", b'{"a": 1}, {"b": 2}', b"[1", b"2", b"3"]
    batch = [read_line(text, f"line {number}") for number, text in enumerate(texts, 1)]
    outcomes = send(client, batch, ack="durable", waiting=lambda why: None)
    assert [one["status"] for one in outcomes] == [
        "stored", "refused", "refused", "refused", "stored", "stored",
    ]  # fmt: skip
    assert [(one["where"], one["code"]) for one in outcomes if one["status"] == "refused"] == [
        ("line 2", "bad_json"), ("line 3", "bad_json"), ("line 4", "bad_json"),
    ]  # fmt: skip
    assert client.asked == [3]
    assert send(client, batch[1:4], ack="durable", waiting=lambda why: None) == outcomes[1:4]
    assert client.asked == [3], "nothing is sent where nothing can be read"


@pytest.mark.parametrize("text", [b'"\xff"', b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 5000 + b"]" * 5000])
def test_json_that_only_the_door_judges_is_sent(text: bytes) -> None:
    assert read_line(text, "line 1").refusal is None


def test_an_instance_that_is_away_for_a_moment_is_asked_again() -> None:
    client, said = Instance(away, away, stored), list[str]()
    assert len(send(client, lines(b"1", b"2"), ack="fast", waiting=said.append)) == 2
    assert client.asked == [2, 2, 2]
    assert said == ["closed for a moment"] * 2


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PATIENCE_S", 0.3)
    with pytest.raises(CliError, match="closed for a moment") as raised:
        send(Instance(away), lines(b"1"), ack="durable", waiting=lambda why: None)
    assert raised.value.exit_code == UNREACHABLE


def test_a_tally_counts_what_was_not_taken() -> None:
    tally = Tally()
    for status in ("stored", "duplicate", "accepted", "refused", "conflict"):
        tally.add({"id": "x", "status": status} | ({"note": "odd"} if status != "refused" else {}))
    assert (tally.taken, tally.failed) == (3, 2)
    assert tally.notes == {"odd": 4}
    assert [one["status"] for one in tally.failures] == ["refused", "conflict"]
