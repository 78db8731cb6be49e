"""Verify: fold the log again into a scratch generation and compare it with the live one at the same positions.

The refold differs from live on purpose in all that must not matter: other batch sizes, hardly any cache, and every
JSON value through its text, so that a fold that leans on any of them is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Connection, Table, select

from events.archive.erasing import has_erasure_after
from events.database import Database, Stores
from events.errors import Transient
from events.event import Position
from projections import generations
from projections.engine import checkpoints, repair, tables
from projections.engine.discards import discarded
from projections.engine.fold import Refusal
from projections.engine.folder import PartitionFolder
from projections.engine.pace import Pace
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.progress import Cancelled
from projections.rebuilding.scratch import scratch_store

BATCH = 997
CACHE_ROWS = 500
FIRST_DIFFERENCES = 10
_MODULUS = 1 << 128

_ENGINE_TABLES = (
    (tables.dead_letters, ("partition", "epoch", "n", "org", "key", "event_id", "type", "cause")),
    (tables.parked_keys, ("org", "key", "partition", "epoch", "n")),
)
"""What of the engine's own tables follows from the log. Error texts and tracebacks belong to the code's place."""

Progress = Callable[[int, int], None]
"""Told (events done, events in all)."""


@dataclass(frozen=True)
class Snapshot:
    """A generation at one moment: its position vector and a checksum of each table that does not depend on order."""

    vector: Mapping[int, Position]
    checksums: Mapping[str, int]
    refused: Mapping[tuple[int, Position], Refusal] = field(default_factory=dict)

    @property
    def checksum(self) -> str:
        """32 hex digits for all tables together."""
        return blake2b(orjson.dumps(sorted((k, str(v)) for k, v in self.checksums.items())), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Verification:
    """Whether a read model is what its log says. A difference is ``{table, key, live, refolded}``, rows or None."""

    name: str
    generation: int
    checksum: str
    equal: bool
    first_differences: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """One element of ``projections`` of ``refold verify --json``."""
        return {
            "name": self.name,
            "generation": self.generation,
            "checksum": self.checksum,
            "equal": self.equal,
            "first_differences": self.first_differences,
        }


def verify(
    projection: Projection,
    stores: Stores,
    log: Database,
    *,
    generation: Generation | None = None,
    batch: int = BATCH,
    progress: Progress | None = None,
    cancel: Callable[[], bool] = lambda: False,
    max_events_per_s: float | None = None,
) -> Verification:
    """Compare a generation (default: the active one) with a refold of the log. Blocking; reads and writes go on.

    Raises Refused when there is none, or when other code made it: what this code would make of the log says nothing
    about it. Raises Cancelled when ``cancel`` said so; the scratch generation is dropped in every case.
    """
    active = generation or log.read_now(lambda conn: generations.active(conn, projection.name))
    found = generations.of_this_code(active, projection)
    live_db = stores.generation(found.name)
    try:
        live = live_db.read_now(lambda conn: take_snapshot(conn, projection))
        with scratch_store(projection, stores, log, strict=True) as scratch:
            refold = _Refold(
                scratch, log, batch, Pace(max_events_per_s), cancel, progress or (lambda done, total: None)
            )
            return _compare(projection, found, live_db, live, refold)
    finally:
        live_db.close()


def as_document(verifications: Iterable[Verification]) -> dict[str, Any]:
    """What ``refold verify --json`` prints."""
    results = [verification.as_dict() for verification in verifications]
    return {"equal": all(result["equal"] for result in results), "projections": results}


def take_snapshot(conn: Connection, projection: Projection) -> Snapshot:
    """Position vector and checksums, on one snapshot of the store."""
    letters = tables.dead_letters.c
    lost = conn.execute(
        select(letters.partition, letters.epoch, letters.n, letters.cause, letters.error).where(
            letters.cause.in_(repair.UNFOLDABLE)
        )
    )
    return Snapshot(
        checkpoints.read_vector(conn),
        {str(table.name): sum(_digest(row) for _, row in _rows(conn, table, columns)) % _MODULUS
         for table, columns in _compared(projection)},
        {(partition, Position(epoch, n)): Refusal(cause, error) for partition, epoch, n, cause, error in lost},
    )  # fmt: skip


def _compare(
    projection: Projection, found: Generation, live_db: Database, live: Snapshot, refold: _Refold
) -> Verification:
    refolded = refold.to(live)
    equal = refolded.checksums == live.checksums and refolded.vector == live.vector
    differences: list[dict[str, Any]] = []
    if not equal and refold.log.read_now(partial(has_erasure_after, vector=live.vector)):
        raise Transient(f"{projection.name} has not come to an erasure yet, which the archive has: check it again then")
    if not equal:
        unequal = [name for name, checksum in live.checksums.items() if refolded.checksums[name] != checksum]
        differences = _differences(projection, live_db, refold, unequal)
    return Verification(projection.name, found.number, live.checksum, equal, differences)


@dataclass(frozen=True)
class _Refold:
    """A scratch generation that is folded to wherever the live one is."""

    store: GenerationStore
    log: Database
    batch: int
    pace: Pace
    cancel: Callable[[], bool]
    progress: Progress

    def to(self, target: Snapshot) -> Snapshot:
        """Fold each partition up to the target's position, from wherever it is."""
        projection = self.store.projection
        begun = self.store.db.read_now(checkpoints.read_vector)
        source = ArchiveSource(self.log)
        done = 0
        total = sum(position.n + 1 for position in target.vector.values())
        for partition, upto in sorted(target.vector.items()):
            refused = self.log.read_now(
                partial(discarded, projection=projection, partition=partition, after=begun[partition], upto=upto)
            )
            refused |= {p: refusal for (of, p), refusal in target.refused.items() if of == partition}
            folder = PartitionFolder.take_over(
                self.store, source, partition, "verify", batch=self.pace.batch(self.batch), cache_rows=CACHE_ROWS,
                refused=refused,
            )  # fmt: skip
            while read := folder.step(upto).read:
                done += read
                self.progress(done, max(total, done))
                self._watch()
                self.pace.hold(read, self._watch)
        return self.store.db.read_now(lambda conn: take_snapshot(conn, projection))

    def _watch(self) -> None:
        if self.cancel():
            raise Cancelled("the check was cancelled; it has changed nothing")


def _differences(
    projection: Projection,
    live_db: Database,
    refold: _Refold,
    unequal: list[str],
) -> list[dict[str, Any]]:
    """The first differing rows of the tables that differed.

    Live has moved on since its checksums were taken, so both are brought to one newer vector and compared row by row.
    """

    def hashes(conn: Connection) -> dict[str, dict[tuple[Any, ...], int]]:
        return {
            str(table.name): {key: _digest(row) for key, row in _rows(conn, table, columns)}
            for table, columns in _compared(projection)
            if table.name in unequal
        }

    target, live = live_db.read_now(lambda conn: (take_snapshot(conn, projection), hashes(conn)))
    refold.to(target)
    scratch = refold.store.db
    refolded = scratch.read_now(hashes)
    found = []
    for name in unequal:
        keys = sorted(
            k for k in live[name].keys() | refolded[name].keys() if live[name].get(k) != refolded[name].get(k)
        )
        found += [(name, key) for key in keys]
    return [
        {
            "table": name,
            "key": list(key),
            "live": live_db.read_now(partial(_row, projection, name, key)),
            "refolded": scratch.read_now(partial(_row, projection, name, key)),
        }
        for name, key in found[:FIRST_DIFFERENCES]
    ]


def _compared(projection: Projection) -> list[tuple[Table, tuple[str, ...]]]:
    own = [(table, tuple(str(column.name) for column in table.columns)) for table in projection.tables]
    return [*own, *_ENGINE_TABLES]


def _rows(conn: Connection, table: Table, columns: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Primary key and row of each row, in any order."""
    keys = [columns.index(column.name) for column in table.primary_key.columns]
    query = select(*(table.c[name] for name in columns)).execution_options(yield_per=2000)
    for row in conn.execute(query):
        yield tuple(row[index] for index in keys), dict(zip(columns, row, strict=True))


def _row(projection: Projection, name: str, key: tuple[Any, ...], conn: Connection) -> dict[str, Any] | None:
    table, columns = next((t, c) for t, c in _compared(projection) if t.name == name)
    query = select(*(table.c[column] for column in columns))
    for column, value in zip(table.primary_key.columns, key, strict=True):
        query = query.where(column == value)
    row = conn.execute(query).first()
    return None if row is None else dict(zip(columns, row, strict=True))


def _digest(row: Mapping[str, Any]) -> int:
    return int.from_bytes(blake2b(orjson.dumps(row, option=orjson.OPT_SORT_KEYS), digest_size=16).digest(), "big")
