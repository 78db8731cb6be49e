"""What the engine's tests work on: a projection with every hazard, an archive to fill, a naive fold to agree with.

The projection reads rows that it named, rows that it did not name, deletes rows, and fails or dies when told to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import BigInteger, Boolean, Column, Connection, Double, MetaData, Text, select

from events.archive import queries
from events.archive.erasing import erase_archived
from events.archive.schema import metadata as archive_metadata
from events.archive.store import archive_batch, open_log, watermark
from events.database import Database, Stores
from events.door import admit
from events.event import Event, Position, Recorded
from events.keys import partition_of
from events.registry import decode_payload
from events.types.system import DeadletterDiscarded
from events.types.thought import MessageAdded, NoteWritten
from events.types.tools import ToolCalled, ToolReturned
from projections.engine import tables as engine_tables
from projections.projection import Change, Drop, Json, Projection, Put, RowRef, Rows, read_model_table

PARTITIONS = 4
_metadata = MetaData()

TALLIES = read_model_table(
    _metadata, "tallies",
    Column("events", BigInteger), Column("total", Double), Column("even", Boolean),
    Column("last", Text), Column("recent", Json),
)  # fmt: skip
NOTES = read_model_table(
    _metadata, "notes", Column("name", Text, primary_key=True), Column("content", Json), Column("version", BigInteger)
)
CALLS = read_model_table(_metadata, "calls", Column("call", Text, primary_key=True), Column("result", Json))


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """One tally a key; notes with versions that may copy another note; calls that may end before they start."""
    yield _tally(recorded, rows)
    match recorded.payload:
        case NoteWritten(key="poison"):
            raise ValueError("this note cannot be folded")
        case NoteWritten(key="die") if os.environ.get("TOY_DIES"):
            os._exit(9)
        case NoteWritten(key="wide"):
            yield Put("notes", {"name": "wide", "content": recorded.payload.content, "version": 2**63})
        case NoteWritten(key=name, content=content):
            other = rows.get("notes", content["copy"]) if isinstance(content, dict) and "copy" in content else None
            old = rows.get("notes", name)
            value = content if other is None else [content, other["content"]]
            yield Put("notes", {"name": name, "content": value, "version": old["version"] + 1 if old else 1})
        case ToolCalled(call_id=call):
            if rows.get("calls", call) is None:
                yield Put("calls", {"call": call})
        case ToolReturned(call_id=call, result=result):
            yield Put("calls", {"call": call, "result": result})
        case MessageAdded(name=name):
            yield Drop("notes", (name,))


def _tally(recorded: Recorded, rows: Rows) -> Put:
    old = rows.get("tallies")
    events = (old["events"] if old else 0) + 1
    total = (old["total"] if old else 0.0) * 0.5 + len(recorded.event.data)
    recent = [*(old["recent"] if old else []), recorded.event.id][-3:]
    last = recorded.event.id
    return Put("tallies", {"events": events, "total": total, "even": events % 2 == 0, "last": last, "recent": recent})


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that most events read; a copied note is left out on purpose."""
    yield RowRef("tallies")
    match recorded.payload:
        case NoteWritten(key=name):
            yield RowRef("notes", (name,))
        case ToolCalled(call_id=call):
            yield RowRef("calls", (call,))


TOY = Projection(
    name="toy",
    version=1,
    tables=(TALLIES, NOTES, CALLS),
    handles=frozenset({"note.written", "tool.called", "tool.returned", "message.added"}),
    apply=apply,
    names=names,
)


def event(type_: str, id_: str, task: str, data: Mapping[str, Any] | None = None, **envelope: Any) -> Event:
    """An admitted event of a task."""
    return admit(
        {
            "type": type_,
            "id": id_,
            "task": task,
            "run": "r",
            "time": "2026-03-01T10:00:00Z",
            "data": data or {},
            **envelope,
        }
    )


def note(id_: str, task: str, key: str, content: Any = "x", **envelope: Any) -> Event:
    """A note of a task."""
    return event("note.written", id_, task, {"key": key, "content": content}, **envelope)


def discard(id_: str, task: str, event_id: str, projection: str = "toy") -> Event:
    """The discard of an event of a task."""
    data = {"projection": projection, "event_id": event_id, "partition_key": f"task/{task}"}
    return event("deadletter.discarded", id_, task, data)


def where(task: str, org: str = "default") -> int:
    """The partition of a task."""
    return partition_of(org, f"task/{task}", PARTITIONS)


class Lab:
    """Stores with an empty log of PARTITIONS partitions."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.log = stores.log()
        self.log.write_now(archive_metadata.create_all)
        self.log.write_now(lambda conn: open_log(conn, PARTITIONS, 0))

    def archive(self, *events: Event, received_ms: int = 1000) -> list[Position]:
        """Archive events, each in its partition, behind what is there; their positions."""
        positions: list[Position] = []

        def work(conn: Connection) -> None:
            for each in events:
                partition = partition_of(each.org, each.key, PARTITIONS)
                mark = watermark(conn, partition)
                position = Position(max(1, mark.epoch), mark.n + 1)
                self._first_epoch(conn, partition, mark)
                mark = watermark(conn, partition)
                archive_batch(conn, partition, mark, [(position, each)], received_ms)
                erase_archived(conn, {partition: [(position, each)]}, received_ms)
                positions.append(position)

        self.log.write_now(work)
        return positions

    def rows(self, generation: str) -> dict[str, Any]:
        """All rows of a generation, as ``dump`` gives them."""
        db = self.stores.generation(generation)
        try:
            return dump(db)
        finally:
            db.close()

    def marks(self) -> dict[int, Position]:
        """The watermarks."""
        return self.log.read_now(queries.read_watermarks)

    def _first_epoch(self, conn: Connection, partition: int, mark: Position) -> None:
        from events.archive.store import end_epoch

        if mark.epoch == 0:
            end_epoch(conn, partition, mark, 1, "", 0)


def dump(db: Database, *, letters: bool = True) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a generation holds, in an order of our own."""

    def work(conn: Connection) -> dict[str, list[tuple[Any, ...]]]:
        rows = {table.name: [tuple(row) for row in conn.execute(select(table))] for table in TOY.tables}
        if letters:
            t = engine_tables.dead_letters.c
            query = select(t.partition, t.epoch, t.n, t.event_id, t.cause)
            rows["dead_letters"] = [tuple(row) for row in conn.execute(query)]
            rows["parked"] = [tuple(row) for row in conn.execute(select(engine_tables.parked_keys))]
        return {name: sorted(found, key=repr) for name, found in rows.items()}

    return db.read_now(work)


class _Naive:
    """Rows of one key in a dictionary."""

    def __init__(self, rows: dict[tuple[Any, ...], Mapping[str, Any]], org: str, key: str) -> None:
        self.rows, self.org, self.key = rows, org, key

    def get(self, table: str, *pk: Any) -> Mapping[str, Any] | None:
        return self.rows.get((table, self.org, self.key, *pk))


def naive(logs: Mapping[int, Sequence[tuple[Position, Event]]]) -> dict[str, list[tuple[Any, ...]]]:
    """The read model by the plainest code: no batches, no cache, no store, discarded events left out from the start."""
    rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    letters: list[tuple[Any, ...]] = []
    parked: dict[tuple[str, str], tuple[Any, ...]] = {}
    for partition, log in logs.items():
        seen: set[tuple[str, str, str]] = set()
        discarded = {
            (e.org, e.key, p.event_id)
            for _, e in log
            if e.type == "deadletter.discarded"
            and isinstance(p := decode_payload(e), DeadletterDiscarded)
            and p.projection == "toy"
        }
        for position, e in log:
            identity = (e.org, e.key, e.id)
            if identity in seen or e.type not in TOY.handles or identity in discarded:
                seen.add(identity)
                continue
            seen.add(identity)
            try:
                if (e.org, e.key) in parked:
                    raise LookupError("waiting")
                recorded = Recorded(partition, position, e, decode_payload(e))
                changes = list(apply(recorded, _Naive(rows, e.org, e.key)))
                if any(isinstance(c, Put) and c.row.get("version") == 2**63 for c in changes):
                    raise OverflowError
            except Exception as error:  # noqa: BLE001 - the reference does what the engine must do
                parked.setdefault((e.org, e.key), (e.org, e.key, partition, *position))
                cause = "waiting" if isinstance(error, LookupError) else "poison"
                letters.append(
                    (
                        partition,
                        *position,
                        e.id,
                        "newer_version" if e.schemaversion > 1 and cause == "poison" else cause,
                    )
                )
                continue
            for change in changes:
                if isinstance(change, Drop):
                    rows.pop((change.table, e.org, e.key, *change.pk), None)
                else:
                    pk = {"tallies": (), "notes": ("name",), "calls": ("call",)}[change.table]
                    rows[(change.table, e.org, e.key, *(change.row[name] for name in pk))] = change.row
    result: dict[str, list[tuple[Any, ...]]] = {
        table.name: [
            (name[1], name[2], *(orjson.loads(orjson.dumps(row.get(c.name))) for c in list(table.columns)[2:]))
            for name, row in rows.items()
            if name[0] == table.name
        ]
        for table in TOY.tables
    }
    result |= {"dead_letters": letters, "parked": list(parked.values())}
    return {name: sorted(found, key=repr) for name, found in result.items()}


def lab_in(folder: Path) -> Lab:
    """A lab on SQLite files in a folder."""
    return Lab(Stores(f"sqlite:///{folder}"))
