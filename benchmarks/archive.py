"""How fast the archive takes events, against a plain executemany of the same rows into the same tables without indexes.

Both sides commit 1,000 events a transaction, in turn, on fresh stores; the medians are compared. ``--indexes`` also
tells what each index costs. Run: ``python -m benchmarks.archive``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from benchmarks.workload import agent_events
from events.archive import queries, store
from events.archive.schema import event_log, metadata
from events.database import Database, Stores
from events.event import START, Event, Position
from tests.servers import postgres_server

ROUNDS = 3
BATCH = 1_000
INDEXES = ("event_log_run", "event_log_key", "event_log_attempts", "event_log_recent_runs")
_EVENT_FIELDS = Event.__struct_fields__
_COLUMNS = tuple(column.name for column in event_log.columns)


def new_log(db: Database) -> Position:
    """An empty log with its tables, open at epoch 1."""

    def work(conn: Connection) -> Position:
        metadata.drop_all(conn)
        metadata.create_all(conn)
        store.open_log(conn, 1, 0)
        return store.end_epoch(conn, 0, START, 1, "", 0)

    return db.write_now(work)


def archive(db: Database, events: Sequence[Event], prepare: Callable[[Connection], None] = lambda conn: None) -> float:
    """Events/s through ``archive_batch``."""
    mark = new_log(db)
    db.write_now(prepare)
    began = time.perf_counter()
    for start in range(0, len(events), BATCH):
        entries = [(Position(1, start + n), event) for n, event in enumerate(events[start : start + BATCH])]
        mark = db.write_now(lambda conn, at=mark, batch=entries: store.archive_batch(conn, 0, at, batch, 7))  # type: ignore[misc]
    return len(events) / (time.perf_counter() - began)


def plain(db: Database, events: Sequence[Event]) -> float:
    """Rows/s of executemany by hand: rows ready-made, primary key only, nothing checked."""
    new_log(db)
    db.write_now(without(*INDEXES))
    names = ", ".join(f'"{name}"' for name in _COLUMNS)
    mark = "?" if db.dialect == "sqlite" else "%s"
    statement = f"INSERT INTO event_log ({names}) VALUES ({', '.join(mark for _ in _COLUMNS)})"
    rows = [_row(n, event) for n, event in enumerate(events)]
    began = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]

        def work(conn: Connection, batch: list[tuple[Any, ...]] = batch) -> None:
            driver: Any = conn.connection.driver_connection
            driver.cursor().executemany(statement, batch)

        db.write_now(work)
    return len(events) / (time.perf_counter() - began)


def read_back(db: Database) -> float:
    """Positions/s of ``read_log`` over what is archived, events built."""
    began, at, count = time.perf_counter(), START, 0
    while page := db.read_now(lambda conn, at=at: queries.read_log(conn, 0, at, 2_000)):  # type: ignore[misc]
        at, count = page[-1].position, count + len([row.event() for row in page])
    return count / (time.perf_counter() - began)


def without(*indexes: str) -> Callable[[Connection], None]:
    """Drop indexes before a round."""

    def prepare(conn: Connection) -> None:
        for index in indexes:
            conn.execute(text(f"DROP INDEX {index}"))

    return prepare


def _row(n: int, event: Event) -> tuple[Any, ...]:
    values = {name: getattr(event, name) for name in _EVENT_FIELDS}
    values |= {"partition": 0, "epoch": 1, "n": n, "verdict": "effective", "received_ms": 7}
    return tuple(values.get(name) for name in _COLUMNS)


def compare(name: str, db: Database, events: Sequence[Event], *, indexes: bool) -> None:
    """Print the figures of one store."""
    sides: dict[str, list[float]] = {"plain": [], "archive": []}
    for _ in range(ROUNDS):
        sides["plain"].append(plain(db, events))
        sides["archive"].append(archive(db, events))
    ours, theirs = (statistics.median(sides[side]) for side in ("archive", "plain"))
    print(f"{name}: archive {ours:,.0f} events/s, plain executemany {theirs:,.0f} rows/s, ratio {ours / theirs:.2f}")
    print(f"{name}: read back {read_back(db):,.0f} events/s")
    if indexes:
        for index in (*INDEXES, None):
            prepare = without(*((index,) if index else INDEXES))
            rate = statistics.median(archive(db, events, prepare) for _ in range(ROUNDS))
            print(f"{name}: without {index or 'any index'}: {rate:,.0f} events/s ({rate / ours:.2f})")


def main() -> None:
    """Run both stores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--indexes", action="store_true", help="also without each index")
    options = parser.parse_args()
    events = list(agent_events(options.events))
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as folder:
        Path(folder).chmod(0o755)
        server = postgres_server(Path(folder) / "postgres", fsync="on")
        for name, stores in (("sqlite", Stores(f"sqlite:///{folder}/sqlite")), ("postgresql", Stores(server.url))):
            db = stores.log()
            compare(name, db, events, indexes=options.indexes)
            db.close()
        server.stop()


if __name__ == "__main__":
    main()
