"""What the length of a task costs: a step at 10 and at 10,000 steps, and the task's state at an earlier position.

A step is seven events (start, message, call, result, model, checkpoint, end), folded and committed by the engine at
once, as they come to a projector that is not behind. A short task (10 to 30 steps, then another) and a long one take
turns in one generation; the medians are compared. Then the long task is folded anew up to its middle and up to its end,
and its document is made, as ``GET /v1/tasks/{id}?at=`` does. Run: ``python -m benchmarks.task_length``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.workload import append_archive, fill_archive
from events.archive import queries
from events.database import Database, Stores
from events.door import admit
from events.event import START, Event, Position
from projections.engine.folder import PartitionFolder
from projections.engine.past import fold_past, in_memory
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.queries.tasks import task_document
from projections.task_state import TASK_STATE
from tests.servers import postgres_server

SHORT, ROUNDS, BATCH = 10, 300, 5_000
TARGET = 1.5


def step(task: str, number: int) -> list[Event]:
    """The events of one step of a task."""
    call, path = f"c{number}", f"/src/{number}.py"
    told: list[tuple[str, dict[str, Any]]] = [
        ("step.started", {"step": f"s{number}", "title": "Look into the next file"}),
        ("message.added", {"role": "assistant", "content": "I shall read the file and note what it says. " * 3}),
        ("tool.called", {"call_id": call, "name": "read", "arguments": {"path": path}, "step": f"s{number}"}),
        ("tool.returned", {"call_id": call, "result": {"ok": True, "text": "def main(): ... " * 10}}),
        ("model.responded", {"tokens_in": 900, "tokens_out": 120, "cost": 0.01}),
        ("checkpoint.saved", {"data": {"cursor": number, "memory": "x" * 500}, "milestone": number % 100 == 0}),
        ("step.completed", {"step": f"s{number}", "summary": "it says what the others say"}),
    ]  # fmt: skip
    common = {"task": task, "run": f"run-of-{task}", "time": "2026-03-01T10:00:00Z", "source": "bench"}
    return [
        admit({**common, "id": f"{task}-{number}-{i}", "type": type_, "data": data})
        for i, (type_, data) in enumerate(told)
    ]


def steps(task: str, first: int, last: int) -> Iterator[Event]:
    """The events of a task's steps from ``first`` on, without ``last``."""
    for number in range(first, last):
        yield from step(task, number)


def turns(log: Database, folder: PartitionFolder, length: int) -> tuple[list[float], list[float]]:
    """Seconds of fold and commit of one step of the short and of the long task, in turn."""
    sides: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        short, age = divmod(turn, 2 * SHORT)
        if not age:
            append_archive(log, 0, list(steps(f"short-{short}", 0, SHORT)))
            _catch_up(folder)
        for side, events in zip(sides, (step(f"short-{short}", SHORT + age), step("long", length + turn)), strict=True):
            append_archive(log, 0, events)
            began = time.perf_counter()
            _catch_up(folder)
            side.append(time.perf_counter() - began)
    return sides


def look_back(log: Database, upto: Position) -> tuple[float, float, int]:
    """Seconds that the long task's document at a position takes, of the processor and by the clock; its events."""
    worked, began = time.process_time(), time.perf_counter()
    past = fold_past(TASK_STATE, log, ("default", "task/long"), upto)
    with in_memory(past) as conn:
        assert task_document(conn, "default", "long", now=datetime.now(UTC)) is not None
    return time.process_time() - worked, time.perf_counter() - began, past.events


def _catch_up(folder: PartitionFolder) -> None:
    while folder.step().read:
        pass


def measure(name: str, stores: Stores, length: int) -> None:
    """Print the figures of one store."""
    log = stores.log()
    fill_archive(log, steps("long", 0, length), 1)
    store = GenerationStore(TASK_STATE, stores.generation("task_state__g1"))
    store.create(1)
    folder = PartitionFolder.take_over(store, ArchiveSource(log), 0, "bench", batch=BATCH)
    _catch_up(folder)
    short, long = (statistics.median(side) * 1000 for side in turns(log, folder, length))
    print(
        f"{name}: a step at {SHORT} steps {short:.2f} ms, at {length:,} steps {long:.2f} ms, "
        f"ratio {long / short:.2f} (target <= {TARGET})"
    )
    whole = log.read_now(lambda conn: queries.read_key(conn, "default", "task/long", START, 1_000_000))
    moments = (("event 5,000", 4_999), ("its middle", len(whole) // 2), ("its end", -1))
    for place, upto in ((place, whole[at].position) for place, at in moments):
        work, wait, events = (min(measured) for measured in zip(*(look_back(log, upto) for _ in range(3)), strict=True))
        print(
            f"{name}: the task's state at {place}, {events:,} events: {wait * 1000:,.0f} ms, "
            f"{work * 1000:,.0f} ms of them the processor's"
        )
    store.db.close()
    log.close()


def main() -> None:
    """Run both stores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="length of the long task")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        Path(folder).chmod(0o755)
        measure("sqlite", Stores(f"sqlite:///{folder}/sqlite"), options.steps)
        server = postgres_server(Path(folder) / "postgres", fsync="on")
        measure("postgresql", Stores(server.url), options.steps)
        server.stop()


if __name__ == "__main__":
    main()
