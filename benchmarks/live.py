"""How fast live projection folds the task state, against the least that any code must do for the same rows.

Live: the engine's steps of 500 events, as a projector takes them: read the archive, check density, decode, fold with
the cache, compare and set the checkpoint, upsert, commit. Least: the events read ahead, decoded, folded by ``apply``
over a dictionary, and the rows that changed upserted in one transaction for the same 500 events. Both sides take turns
on fresh stores; the medians are compared. Run: ``python -m benchmarks.live``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.workload import agent_events, fill_archive
from events.archive import queries
from events.archive.reader import Archived
from events.bulk import bulk_delete, bulk_upsert
from events.database import Database, Stores
from events.event import START, Recorded
from events.registry import decode_payload
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection, Put, Row
from projections.task_state import TASK_STATE
from tests.servers import postgres_server

BATCH = 500
PARTITIONS = 4
ROUNDS = 3
TARGET = 0.5


def live(projection: Projection, stores: Stores, log: Database, name: str) -> float:
    """Seconds of the engine for the whole log."""
    store = GenerationStore(projection, stores.generation(name))
    store.create(PARTITIONS)
    began = time.perf_counter()
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(log), partition, "bench", batch=BATCH)
        while folder.step().read:
            pass
    took = time.perf_counter() - began
    store.db.close()
    return took


def least(projection: Projection, stores: Stores, batches: Sequence[Sequence[Archived]], name: str) -> float:
    """Seconds of decoding, folding over a dictionary, and one upsert a table and batch."""
    store = GenerationStore(projection, stores.generation(name))
    store.create(PARTITIONS)
    rows = _Rows()
    began = time.perf_counter()
    for batch in batches:
        changed = _fold(projection, batch, rows)
        store.db.write_now(lambda conn, changed=changed: _upsert(conn, projection, changed))  # type: ignore[misc]
    took = time.perf_counter() - began
    store.db.close()
    return took


class _Rows:
    """Rows of the key at hand, over a dictionary of all."""

    def __init__(self) -> None:
        self.all: dict[tuple[Any, ...], Row] = {}
        self.owner: tuple[str, str] = ("", "")

    def get(self, table: str, *pk: Any) -> Row | None:
        return self.all.get((table, *self.owner, *pk))


def _fold(projection: Projection, batch: Sequence[Archived], rows: _Rows) -> dict[tuple[Any, ...], Row | None]:
    keys = {table.name: [c.name for c in table.primary_key.columns][2:] for table in projection.tables}
    changed: dict[tuple[Any, ...], Row | None] = {}
    for archived in batch:
        event = archived.event()
        if event.type not in projection.handles:
            continue
        recorded = Recorded(archived.partition, archived.position, event, decode_payload(event))
        rows.owner = (event.org, projection.key(recorded))
        for change in projection.apply(recorded, rows):
            if isinstance(change, Put):
                name = (change.table, *rows.owner, *(change.row[key] for key in keys[change.table]))
                rows.all[name] = changed[name] = change.row
            else:
                name = (change.table, *rows.owner, *change.pk)
                rows.all.pop(name, None)
                changed[name] = None
    return changed


def _upsert(conn: Any, projection: Projection, changed: dict[tuple[Any, ...], Row | None]) -> None:
    tables = {table.name: table for table in projection.tables}
    for name, group in groupby(sorted(changed), key=lambda key: key[0]):
        table = tables[name]
        columns = [column.name for column in table.columns]
        own = columns[2:]
        puts, drops = [], []
        for key in group:
            row = changed[key]
            if row is None:
                drops.append(key[1:])
            else:
                puts.append((key[1], key[2], *(row.get(column) for column in own)))
        bulk_upsert(conn, table, columns, puts)
        bulk_delete(conn, table, [c.name for c in table.primary_key.columns], drops)


def _batches(log: Database) -> list[Sequence[Archived]]:
    batches: list[Sequence[Archived]] = []
    for partition in range(PARTITIONS):
        after = START
        while batch := log.read_now(lambda conn, p=partition, a=after: queries.read_log(conn, p, a, BATCH)):  # type: ignore[misc]
            batches.append(batch)
            after = batch[-1].position
    return batches


def measure(stores: Stores, events: int) -> bool:
    """Print the ratio on one kind of store; whether it is good enough."""
    log = stores.log()
    fill_archive(log, agent_events(events), PARTITIONS)
    batches = _batches(log)
    ours, theirs = [], []
    for turn in range(ROUNDS):
        theirs.append(least(TASK_STATE, stores, batches, f"least_{turn}"))
        ours.append(live(TASK_STATE, stores, log, f"live_{turn}"))
    log.close()
    engine, floor = events / statistics.median(ours), events / statistics.median(theirs)
    print(
        f"{stores.dialect:10}  live {engine:9,.0f} events/s   least {floor:9,.0f} events/s   "
        f"ratio {engine / floor:.2f} (target {TARGET})"
    )
    return engine / floor >= TARGET


def main() -> None:
    """Measure both stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=40_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        Path(folder).chmod(0o755)
        measure(Stores(f"sqlite:///{folder}/stores"), events)
        server = postgres_server(Path(folder) / "postgres", fsync="on")
        measure(Stores(server.new_database()), events)
        server.stop()


if __name__ == "__main__":
    main()
