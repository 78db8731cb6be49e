"""The stores of a former version, kept as text, and made again from it: what every later version must start from.

``tests/golden/store-<version>/`` has a file for each store (the log, and each generation), one JSON line for each
statement that made it and one for each row. The code of that version wrote it, and nobody edits it:

    python -m tests.golden_store tests/golden/store-0.1

Before a release that changes a migration, an event type, or what the engine keeps, write one more.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Boolean, Connection, MetaData, Table, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from events.archive.schema import metadata as log_metadata
from events.archive.store import archive_batch, end_epoch, open_log, watermark
from events.database import Database, Stores
from events.door import admit
from events.event import Event, Position
from events.keys import partition_of
from migrations import current, migrate
from projections.engine import tables as engine_tables
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection

GOLDEN = Path(__file__).parent / "golden"
STORES = sorted(path.name for path in GOLDEN.glob("store-*"))
PARTITIONS = 4
_HISTORIES = ("killed_and_resumed", "beliefs_of_an_outage")
_NOW_MS = 1_772_359_200_000
_DIALECTS: Mapping[str, Any] = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}
_OF_A_MOMENT = {"leases": (), "generations": ("created_ms", "activated_ms"), "log_epochs": ("opened_ms",)}
"""Tables that are left out, or whose columns of times get one fixed time."""


def load(name: str, stores: Stores) -> None:
    """Make the stores of a former version again, in empty ones."""
    for path in sorted((GOLDEN / name).glob("*.jsonl")):
        db = stores.log() if path.stem == "log" else stores.generation(path.stem)
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]

        def work(conn: Connection, lines: list[dict[str, Any]] = lines) -> None:
            for line in lines:
                if "ddl" in line:
                    conn.exec_driver_sql(line["ddl"][conn.dialect.name])
                else:
                    _insert(conn, line["table"], line["row"])

        db.write_now(work)
        db.close()


def _insert(conn: Connection, table: str, row: Mapping[str, Any]) -> None:
    columns = ", ".join(f'"{name}"' for name in row)
    values = ", ".join(f":{name}" for name in row)
    conn.execute(text(f'INSERT INTO "{table}" ({columns}) VALUES ({values})'), dict(row))


# -- written by the code of that version ------------------------------------------------------------------------------


def own_events() -> Iterator[dict[str, Any]]:
    """Raw events that every upgrade meets: plain, poison, newer, unknown, repeated, and another organisation's."""

    def event(id_: str, type_: str, task: str, data: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        raw = {"id": id_, "type": type_, "task": task, "run": f"{task}-run", "time": "2026-03-01T10:00:00Z"}
        return raw | {"org": "acme", "source": "golden", "data": dict(data)} | more

    yield event("plain-1", "goal.set", "plain", {"goal": "ship it"})
    yield event("plain-2", "step.completed", "plain", {"step": "s1"})
    yield event("plain-2", "step.completed", "plain", {"step": "s1"})
    yield event("plain-2", "step.completed", "plain", {"step": "another under the same id"})
    yield event("plain-3", "step.completed", "plain", {"step": "s2"})
    yield event("poison-1", "goal.set", "poison", {"goal": "first"})
    yield event("poison-2", "goal.set", "poison", {"goal": "?"})
    yield event("poison-3", "step.completed", "poison", {"step": "s1"})
    yield event("poison-4", "goal.set", "poison", {"goal": "third"})
    yield event("newer-1", "goal.set", "newer", {"goal": "now"})
    yield event("newer-2", "goal.set", "newer", {"objective": "later"}, schemaversion=2)
    yield event("newer-3", "step.completed", "newer", {"step": "s1"})
    yield event("unknown-1", "run.started", "unknown", {"goal": "be rated", "attempt": 1})
    yield event("unknown-2", "step.rated", "unknown", {"stars": 5}, schemaversion=3)
    yield event("unknown-3", "step.completed", "unknown", {"step": "s1"})
    yield event("unknown-4", "run.terminated", "unknown", {"reason": "end_turn"})
    yield event("walled-1", "goal.set", "plain", {"goal": "of another organisation"}, org="globex")


def write(folder: Path, projections: Iterable[Projection]) -> None:
    """Write the stores that the running code makes of the golden histories and of ``own_events``."""
    raws = [orjson.loads(line) for name in _HISTORIES for line in _history(name)]
    with tempfile.TemporaryDirectory() as scratch:
        stores = Stores(f"sqlite:///{scratch}")
        log = stores.log()
        migrate(log)
        log.write_now(lambda conn: open_log(conn, PARTITIONS, _NOW_MS))
        log.write_now(lambda conn: _archive(conn, [admit(raw) for raw in [*raws, *own_events()]]))
        for projection in projections:
            _fold(projection, stores, log)
        folder.mkdir(parents=True, exist_ok=True)
        revision = {"table": "alembic_version", "row": {"version_num": current(log)}}
        table = {"ddl": dict.fromkeys(_DIALECTS, "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")}
        _save(folder / "log.jsonl", log, [log_metadata], [table, revision])
        for projection in projections:
            db = stores.generation(f"{projection.name}__g1")
            _save(folder / f"{projection.name}__g1.jsonl", db, [_metadata_of(projection), engine_tables.metadata], [])
            db.close()
        log.close()


def _history(name: str) -> list[bytes]:
    return (GOLDEN / "histories" / f"{name}.jsonl").read_bytes().splitlines()


def _archive(conn: Connection, events: Iterable[Event]) -> None:
    for event in events:
        partition = partition_of(event.org, event.key, PARTITIONS)
        mark = watermark(conn, partition)
        if mark.epoch == 0:
            mark = end_epoch(conn, partition, mark, 1, "", _NOW_MS)
        archive_batch(conn, partition, mark, [(Position(mark.epoch, mark.n + 1), event)], _NOW_MS)


def _fold(projection: Projection, stores: Stores, log: Database) -> None:
    ensure_first_generation(projection, stores, log, "golden")
    store = GenerationStore(projection, stores.generation(f"{projection.name}__g1"))
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(log), partition, "golden")
        while folder.step().read:
            pass
        folder.hand_over()
    store.db.close()


def _metadata_of(projection: Projection) -> MetaData:
    own = MetaData()
    for table in projection.tables:
        table.to_metadata(own)
    return own


def _save(path: Path, db: Database, metadatas: Iterable[MetaData], first: Iterable[dict[str, Any]]) -> None:
    tables = [table for metadata in metadatas for table in metadata.sorted_tables]
    lines: list[dict[str, Any]] = list(first)
    for table in tables:
        statements = [CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name)))]
        for statement in statements:
            made = {name: str(statement.compile(dialect=of)).strip() for name, of in _DIALECTS.items()}
            lines.append({"ddl": {name: " ".join(ddl.split()) for name, ddl in made.items()}})
    for table in tables:
        rows = db.read_now(lambda conn, table=table: list(_stored(conn, table)))
        lines += [{"table": str(table.name), "row": row} for row in rows]
    text_of = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    path.write_bytes(text_of.replace(f"{Path(__file__).parents[1]}/".encode(), b""))


def _stored(conn: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Rows as they are stored (JSON as text), in the order of the primary key."""
    times = _OF_A_MOMENT.get(str(table.name))
    if times == ():
        return
    order = [column.name for column in table.primary_key]
    for row in conn.execute(select(text("*")).select_from(table).order_by(*(table.c[name] for name in order))):
        values = dict(row._mapping)
        for column in table.columns:
            if isinstance(column.type, Boolean):
                values[column.name] = bool(values[column.name])
        yield values | {name: _NOW_MS for name in times or () if values[name] is not None}


if __name__ == "__main__":
    from tests.upgrades.goals_v1 import PROJECTIONS, TYPE
    from tests.upgrades.goals_v2 import knowing

    with knowing(TYPE):
        write(Path(sys.argv[1]), list(PROJECTIONS.values()))
