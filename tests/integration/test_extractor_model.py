"""What a model finds in what users say, against a real model server: recorded once, proposed from the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from events import door
from events.database import Database
from events.event import Event
from services.models.client import Models
from services.models.routes import Route, Routes
from services.reactors import extractor
from services.reactors.extractor import EXTRACTOR
from services.reactors.reactor import Outside
from services.reactors.reading import TRIES
from tests.integration.reactor_lab import (
    ArchiveOutlet,
    checkpoints_at_end,
    look_often,
    loop_of,
    put,
    run_until,
    sqlite_log,
    stored,
)  # fmt: skip
from tests.model_server import CUT, ModelServer, Reply, model_server, problem, says

SAID = "By the way, trains make me sick. My key is sk-live-AAAA1111BBBB2222cccc. I live in Oslo."
FOUND = {"memories": [{"content": "The user gets sick on trains", "kind": "fact"}]}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "db", EXTRACTOR) as log:
        yield log


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(lambda body: says(json.dumps(FOUND))) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extractor, "WAIT_S", 0.02)
    look_often(monkeypatch)


def message(name: str, content: str, *, role: str = "user", **started: Any) -> list[Event]:
    names = {"org": "acme", "run": f"r-{name}", "task": f"t-{name}", "user": "u1", "agent": "coder"}
    raws = [("run.started", started), ("message.added", {"role": role, "content": content})]
    return [door.admit({**names, "id": f"{name}-{n}", "type": t, "data": d}) for n, (t, d) in enumerate(raws)]


def read_all(db: Database, server: ModelServer, *, model: str = "small", **limits: Any) -> None:
    async def scenario() -> None:
        models = Models(Routes(models=[Route(model="small", base_url=server.url, **limits)]))
        outside = Outside(models, settle_patience_s=0.3, extract_model=model)
        try:
            loop = loop_of(db, ArchiveOutlet(db), EXTRACTOR, outside=outside)
            await run_until([loop], lambda: checkpoints_at_end(db, "extractor"))
        finally:
            await models.close()

    asyncio.run(scenario())


def proposed(db: Database) -> list[str]:
    return sorted(json.loads(event.data)["content"] for event in stored(db, "memory.proposed"))


def test_what_a_model_finds_is_recorded_once_and_proposed(db: Database, server: ModelServer) -> None:
    """C21: the model sees no secret."""
    put(db, *message("a", SAID))
    read_all(db, server)
    (read,) = stored(db, "conversation.read")
    data = json.loads(read.data)
    assert (data["message"], data["found"], data["calls"], data["tokens_in"]) == ("a-1", FOUND["memories"], 1, 100)
    (event,) = stored(db, "memory.proposed")
    assert json.loads(event.data)["content"] == "The user gets sick on trains" and event.user == "u1"
    assert json.loads(event.data)["source"] == "conversation" and event.causation == read.id
    (body,) = server.requests
    assert "trains make me sick" in body["messages"][1]["content"] and "AAAA1111" not in json.dumps(body)
    read_all(db, server)
    assert len(server.requests) == 1


def test_nobody_is_asked_about_what_is_no_persons_word(db: Database, server: ModelServer) -> None:
    """C40"""
    put(db, *message("agent", SAID, role="assistant"), *message("child", SAID, parent_run="r"))
    put(db, *message("own", "## state\ngoal: book a flight"), *message("empty", "  "))
    read_all(db, server)
    assert server.requests == [] and stored(db, "conversation.read") == [] and proposed(db) == []


@pytest.mark.parametrize("answer", [says("no json"), says('{"memories": [{"content": ""}]}'), problem(400), CUT])
def test_rules_read_what_the_model_gave_no_answer_for(db: Database, server: ModelServer, answer: Reply) -> None:
    server.answer = lambda body: answer
    put(db, *message("a", SAID))
    read_all(db, server)
    (read,) = stored(db, "conversation.read")
    assert json.loads(read.data)["understood"] is False
    assert proposed(db) == ["I live in Oslo."]


def test_an_answer_that_is_none_is_asked_for_once_more(db: Database, server: ModelServer) -> None:
    server.plan = [says("Sure! Here they are.")]
    put(db, *message("a", SAID))
    read_all(db, server)
    assert len(server.requests) == TRIES and "not the JSON" in server.requests[1]["messages"][-1]["content"]
    (read,) = stored(db, "conversation.read")
    assert json.loads(read.data)["calls"] == 2 and proposed(db) == ["The user gets sick on trains"]


def test_without_a_model_rules_read(db: Database, server: ModelServer) -> None:
    put(db, *message("a", SAID))
    read_all(db, server, model="")
    assert stored(db, "conversation.read") == [] and proposed(db) == ["I live in Oslo."]
