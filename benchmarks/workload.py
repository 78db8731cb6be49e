"""Synthetic agent events for benchmarks: tasks of 20 steps, each with a tool call and its result; ~350 bytes an event.

Deterministic: the same numbers give the same events. Ids are UUIDv7 in time order, as our publishers make them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from events.archive.schema import metadata
from events.archive.store import archive_batch, end_epoch, open_log, watermark
from events.database import Database
from events.door import admit
from events.event import Event, Position
from events.keys import partition_of

STEPS = 20
_BEGINNING = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
_TOOLS = ("search_flights", "read_file", "run_tests", "get_order", "write_file")
_WORDS = (
    "the", "agent", "reads", "plan", "finds", "order", "seat", "file", "test", "error", "result",
    "page", "value", "time", "user", "asks", "books", "path", "city",
)  # fmt: skip


def agent_events(count: int, *, seed: int = 7, at_once: int = 50) -> Iterator[Event]:
    """``count`` events of tasks of which ``at_once`` run side by side."""
    dice = random.Random(seed)
    running = [_run(dice, number) for number in range(at_once)]
    begun = at_once
    for index in range(count):
        slot = dice.randrange(at_once)
        raw = next(running[slot], None)
        if raw is None:
            running[slot] = _run(dice, begun)
            begun += 1
            raw = next(running[slot])
        moment = _BEGINNING + timedelta(milliseconds=index * 7)
        yield admit({**raw, "id": _uuid7(moment, dice), "time": moment.isoformat()})


def fill_archive(log: Database, events: Iterator[Event], partitions: int, *, batch: int = 5000) -> int:
    """Create the log and archive the events in the order given; how many there were."""
    log.write_now(metadata.create_all)

    def create(conn: Connection) -> None:
        open_log(conn, partitions, 0)
        for partition in range(partitions):
            end_epoch(conn, partition, watermark(conn, partition), 1, "", 0)

    log.write_now(create)
    waiting: dict[int, list[Event]] = {partition: [] for partition in range(partitions)}
    count = 0
    for event in events:
        count += 1
        partition = partition_of(event.org, event.key, partitions)
        waiting[partition].append(event)
        if len(waiting[partition]) == batch:
            append_archive(log, partition, waiting[partition])
            waiting[partition] = []
    for partition, rest in waiting.items():
        append_archive(log, partition, rest)
    return count


def append_archive(log: Database, partition: int, events: list[Event]) -> None:
    """Archive events behind what a partition has."""

    def work(conn: Connection) -> None:
        mark = watermark(conn, partition)
        entries = [(Position(mark.epoch, mark.n + 1 + i), event) for i, event in enumerate(events)]
        archive_batch(conn, partition, mark, entries, time.time_ns() // 1_000_000)

    log.write_now(work)


def _run(dice: random.Random, number: int) -> Iterator[dict[str, Any]]:
    task = f"task-{number:06}"
    common = {
        "task": task,
        "run": f"run-{number:06}",
        "agent": "coder",
        "user": f"user-{number % 97}",
        "source": "bench",
    }

    def event(type_: str, **data: Any) -> dict[str, Any]:
        return {**common, "type": type_, "data": data}

    yield event("run.started", goal=_text(dice, 12), attempt=1, model="model-1")
    yield event("plan.updated", steps=[{"id": f"s{i}", "title": _text(dice, 3)} for i in range(STEPS)])
    for step in range(STEPS):
        call, tool = f"{task}-c{step}", dice.choice(_TOOLS)
        yield event("step.started", step=f"s{step}", title=_text(dice, 4))
        yield event("message.added", role="assistant", content=_text(dice, 18))
        yield event(
            "tool.called", call_id=call, name=tool, step=f"s{step}",
            arguments={"path": f"/src/{dice.choice(_WORDS)}.py", "query": _text(dice, 6)},
        )  # fmt: skip
        yield event("tool.returned", call_id=call, name=tool, result={"ok": True, "text": _text(dice, 25)})
        yield event("model.responded", model="model-1", tokens_in=dice.randrange(4000), tokens_out=200, cost=0.01)
        yield event("step.completed", step=f"s{step}", summary=_text(dice, 10))
    yield event("run.terminated", reason="end_turn", detail=_text(dice, 8))


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(_WORDS) for _ in range(words))


def _uuid7(moment: datetime, dice: random.Random) -> str:
    value = int(moment.timestamp() * 1000) << 80 | 0x7 << 76 | dice.getrandbits(12) << 64 | 0b10 << 62
    return str(UUID(int=value | dice.getrandbits(62)))
