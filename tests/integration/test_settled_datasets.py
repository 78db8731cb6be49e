"""Every recorded run there is settles once: by its own notes, by a model, or by what its events prove."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from events import door
from events.archive import queries, store
from events.database import Database
from events.event import START, Event, Position
from events.keys import partition_of
from services.models.client import Models
from services.models.routes import Route, Routes
from services.reactors.reactor import Outside
from services.reactors.settler import SETTLER
from tests.integration.reactor_lab import (
    NOW_MS,
    PARTITIONS,
    ArchiveOutlet,
    checkpoints_at_end,
    loop_of,
    run_until,
    sqlite_log,
)  # fmt: skip
from tests.model_server import ModelServer, model_server
from tests.soak import soak
from tests.unit.test_importers_datasets import load

PAGE = 5_000
SETTLED = ("settlement.recorded", "settlement.degraded")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "db", SETTLER) as log:
        yield log


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


def put_all(db: Database, events: list[Event]) -> None:
    """Archive events, each partition at once."""
    parts: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        parts[partition_of(event.org, event.key, PARTITIONS)].append(event)

    def work(conn: Any) -> None:
        for partition, some in parts.items():
            store.end_epoch(conn, partition, START, 1, "", NOW_MS)
            rows = [(Position(1, n), event) for n, event in enumerate(some)]
            store.archive_batch(conn, partition, Position(1, -1), rows, NOW_MS)

    db.write_now(work)


def everything(db: Database) -> Iterator[Event]:
    for partition in range(PARTITIONS):
        after = START
        while page := db.read_now(lambda conn, p=partition, a=after: queries.read_log(conn, p, a, PAGE, None)):
            yield from (archived.event() for archived in page if archived.verdict == "effective")
            after = page[-1].position


def import_and_settle(db: Database, server: ModelServer, *, model: str) -> tuple[Counter[str], list[Event]]:
    """What is imported (runs by format), and all events after every run has been settled."""
    sources = {"chat": "tau-bench-airline", "relay": "relay"}
    runs = {format: load(format, folder)[0] for format, folder in sources.items()}
    raws = [event for some in runs.values() for run in some for event in run.events]
    for raw in raws:
        if raw["type"] == "run.started":
            raw["data"]["model"] = model
    put_all(db, [door.admit(raw) for raw in raws])

    async def scenario() -> None:
        models = Models(Routes(models=[Route(model="m", base_url=server.url)]))
        loop = loop_of(db, ArchiveOutlet(db), SETTLER, outside=Outside(models, 60.0, 1.0))
        try:
            await run_until([loop], lambda: checkpoints_at_end(db, "settler"))
        finally:
            await models.close()

    asyncio.run(scenario())
    return Counter({format: len(some) for format, some in runs.items()}), list(everything(db))


@soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ["m", ""], ids=["with-a-model", "without"])
def test_every_recorded_run_settles_once(db: Database, server: ModelServer, model: str) -> None:
    runs, events = import_and_settle(db, server, model=model)
    ended = {(event.task, event.run) for event in events if event.type == "run.terminated"}
    settled = [event for event in events if event.type in SETTLED]
    assert len(ended) == sum(runs.values()) == len(settled)
    assert {(event.task, event.run) for event in settled} == ended
    kinds = Counter(event.type for event in settled)
    own = sum(json.loads(event.data)["by"] == "agent" for event in settled if event.type == "settlement.recorded")
    print(f"{dict(runs)} runs: {dict(kinds)}, {own} by the agent itself, {len(server.requests)} calls")
    asked = len({event.run for event in events if event.type == "settlement.attempted"})
    assert len(server.requests) == asked == (len(ended) - own if model else 0)
    assert kinds["settlement.degraded"] == (0 if model else len(ended) - own)
    for event in settled:
        data = json.loads(event.data)
        assert data["session_state"] if event.type == "settlement.recorded" else data["evidence"] is not None
        assert event.type == "settlement.recorded" or (data["degraded"], data["attempts"]) == ("no_model", 0)
