"""The store of one generation: the read model's tables and the engine's, in one SQLite file or PostgreSQL schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, MetaData, delete, insert, select, text

from events.bulk import bulk_delete, bulk_select, bulk_upsert
from events.database import Database
from events.database_errors import DATABASE_ERRORS
from events.event import Position
from projections.engine import checkpoints, tables
from projections.engine.fold import DeadLetter, Folded, PartitionKey
from projections.engine.shapes import RowKey, Shape, shapes_of
from projections.projection import Projection, Row

UNWRITABLE: tuple[type[Exception], ...] = (*DATABASE_ERRORS, TypeError, ValueError, OverflowError)
"""What writing rows raises when it is the rows' fault (what passes is Transient by then)."""

_LETTER_COLUMNS = tuple(column.name for column in tables.dead_letters.columns)


class GenerationStore:
    """A projection's tables in a database of their own. Created once, never altered.

    ``strict`` folds hand every JSON value on as its text reads, at a price: for checks.
    """

    def __init__(self, projection: Projection, db: Database, *, strict: bool = False) -> None:
        self.projection = projection
        self.db = db
        self.shapes: dict[str, Shape] = shapes_of(projection, strict=strict)

    def create(self, partitions: int) -> None:
        """Create all tables and a checkpoint before the first event for each partition, if they are not there."""

        def work(conn: Connection) -> None:
            if conn.dialect.name == "postgresql":
                # who comes second waits, and finds everything made; SQLite's write transactions do so anyway
                conn.execute(text("SELECT pg_advisory_xact_lock(hashtext(current_schema()))"))
            for metadata in self._metadatas():
                metadata.create_all(conn)
            if not conn.execute(select(tables.checkpoints.c.partition).limit(1)).first():
                conn.execute(insert(tables.checkpoints), checkpoints.new_rows(partitions))

        self.db.write_now(work)

    def load(self, names: Collection[RowKey]) -> dict[RowKey, Row | None]:
        """The rows of these names, None for those that are absent; one SELECT a table."""
        rows: dict[RowKey, Row | None] = dict.fromkeys(names)
        self.db.read_now(lambda conn: rows.update(load_rows(conn, self.shapes, names)))
        return rows

    def load_key(self, org: str, key: str) -> dict[RowKey, Row]:
        """All rows of a key."""

        def work(conn: Connection) -> dict[RowKey, Row]:
            rows: dict[RowKey, Row] = {}
            for shape in self.shapes.values():
                found = bulk_select(conn, shape.driver_table, shape.all_columns, ("org", "key"), [(org, key)])
                rows.update(shape.loaded(values) for values in found)
            return rows

        return self.db.read_now(work)

    def _metadatas(self) -> Iterable[MetaData]:
        read_model = MetaData()
        for table in self.projection.tables:
            table.to_metadata(read_model)
        return (read_model, tables.metadata)


def load_rows(conn: Connection, shapes: Mapping[str, Shape], names: Collection[RowKey]) -> dict[RowKey, Row]:
    """Those of the named rows that there are."""
    rows: dict[RowKey, Row] = {}
    for table, group in groupby(sorted(names), key=lambda name: name[0]):
        shape = shapes[table]
        keys = [name[1:] for name in group]
        found = bulk_select(conn, shape.driver_table, shape.all_columns, shape.key_columns, keys)
        rows.update(shape.loaded(values) for values in found)
    return rows


def write(conn: Connection, shapes: Mapping[str, Shape], folded: Folded, partition: int) -> None:
    """Write what a batch came to, in sorted key order. The checkpoint was compared and set before."""
    write_rows(conn, shapes, folded.rows)
    write_letters(conn, folded.letters)
    if folded.parked:
        bulk_upsert(
            conn,
            tables.parked_keys,
            ("org", "key", "partition", "epoch", "n"),
            [(*owner, partition, *position) for owner, position in sorted(folded.parked.items())],
        )


def write_rows(conn: Connection, shapes: Mapping[str, Shape], rows: Mapping[RowKey, Row | None]) -> None:
    """Upsert rows, delete those that are None; a few bulk statements a table."""
    for table, group in groupby(sorted(rows), key=lambda name: name[0]):
        shape = shapes[table]
        puts: list[tuple[Any, ...]] = []
        drops: list[RowKey] = []
        for name in group:
            row = rows[name]
            if row is None:
                drops.append(name[1:])
            else:
                puts.append(shape.values(name, row))
        bulk_upsert(conn, shape.driver_table, shape.all_columns, puts)
        bulk_delete(conn, shape.driver_table, shape.key_columns, drops)


def write_letters(conn: Connection, letters: Iterable[DeadLetter]) -> None:
    """Record dead letters."""
    rows = [(letter.partition, *letter.position, *letter[2:]) for letter in letters]
    bulk_upsert(conn, tables.dead_letters, _LETTER_COLUMNS, rows)


def read_letters(conn: Connection, owner: PartitionKey) -> list[DeadLetter]:
    """The dead letters of a partition key, in order."""
    table = tables.dead_letters
    found = conn.execute(
        select(table).where(table.c.org == owner[0], table.c.key == owner[1]).order_by(table.c.epoch, table.c.n)
    )
    return [DeadLetter(partition, Position(epoch, n), *rest) for partition, epoch, n, *rest in found]


def unpark(conn: Connection, owner: PartitionKey) -> None:
    """Forget a key's dead letters: their events have just been folded, or will be parked anew."""
    for table in (tables.dead_letters, tables.parked_keys):
        conn.execute(delete(table).where(table.c.org == owner[0], table.c.key == owner[1]))
