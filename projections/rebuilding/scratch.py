"""Scratch generations: folded beside the live one to be compared with it, never read, and dropped whatever happens.

Whoever works on one holds a lease. One whose lease has ended was left by a process that died; the next to make a
scratch drops it first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from uuid import uuid4

from sqlalchemy import Connection, select

from events.database import Database, Stores
from events.errors import Transient
from events.event import Position
from projections.engine import checkpoints, ownership, tables
from projections.engine.birth import create_store
from projections.engine.fold import Refusal
from projections.engine.folder import PartitionFolder
from projections.engine.pace import Pace
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.progress import Cancelled

MARK = "__scratch_"
"""Stands in the name of every scratch generation, and of no other."""

TTL_S = 30.0
NEAR = 1_000
"""Events that may be folded while the live generation is held still."""

ROUNDS = 50
"""Times that a scratch runs after a live generation that moves on before it takes what is left in one go."""


@contextmanager
def scratch_store(
    projection: Projection, stores: Stores, log: Database, *, strict: bool = False
) -> Iterator[GenerationStore]:
    """An empty generation of a name of its own, dropped at the end; leftovers of others are dropped at the start."""
    drop_leftovers(stores, log)
    name = f"{projection.name}{MARK}{uuid4().hex[:12]}"
    with _lease(log, name):
        try:
            store = create_store(projection, stores, log, name, strict=strict)
            try:
                yield store
            finally:
                store.db.close()
        finally:
            stores.drop_generation(name)


def drop_leftovers(stores: Stores, log: Database) -> list[str]:
    """Drop the scratch generations that nobody works on any more; their names."""
    found = stores.find_generations(MARK)
    if not found:
        return []
    held = log.read_now(lambda conn: {name for name in found if ownership.is_held(conn, _lease_name(name))})
    dropped = [name for name in found if name not in held]
    for name in dropped:
        stores.drop_generation(name)
    return dropped


class Refold:
    """A scratch generation in the hands of whoever folds it, up to wherever it is told.

    ``told(done)`` hears how many events are folded so far. Raises Cancelled when ``cancel`` says so.
    """

    def __init__(
        self,
        store: GenerationStore,
        log: Database,
        partitions: list[int],
        *,
        batch: int,
        cache_rows: int,
        refused: Mapping[tuple[int, Position], Refusal] | None = None,
        told: Callable[[int], None] = lambda done: None,
        cancel: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
    ) -> None:
        self.store = store
        self.partitions = partitions
        self.done = 0
        self._told, self._cancel = told, cancel
        self._pace = pace or Pace()
        source = ArchiveSource(log)
        batch, cache_rows = self._pace.batch(batch), cache_rows // len(partitions)
        self._folders = {
            partition: PartitionFolder.take_over(
                store, source, partition, "scratch", batch=batch, cache_rows=cache_rows,
                refused={p: refusal for (of, p), refusal in (refused or {}).items() if of == partition},
            )
            for partition in partitions
        }  # fmt: skip

    def to(self, vector: Mapping[int, Position]) -> int:
        """Fold each partition up to its position; how many events that took."""
        before = self.done
        for partition, folder in self._folders.items():
            while folder.position < vector[partition]:
                self._watch()
                read = folder.step(vector[partition]).read
                if not read:
                    raise Transient(f"the archive ends at {folder.position} of partition {partition}: try again")
                self.done += read
                self._told(self.done)
                self._pace.hold(read, self._watch)
        return self.done - before

    def after(self, live: Database) -> None:
        """Fold until the live generation, which moves on, is at most about NEAR events ahead."""
        for _ in range(ROUNDS):
            if self.to(live.read_now(checkpoints.read_vector)) <= NEAR:
                return

    def _watch(self) -> None:
        if self._cancel():
            raise Cancelled


def read_deadly(conn: Connection) -> dict[tuple[int, Position], Refusal]:
    """Events that killed the processes which folded them, as a generation tells: no scratch tries those again."""
    letters = tables.dead_letters.c
    query = select(letters.partition, letters.epoch, letters.n, letters.error).where(letters.cause == "killed")
    return {(p, Position(epoch, n)): Refusal("killed", error) for p, epoch, n, error in conn.execute(query)}


def _lease_name(name: str) -> str:
    return f"scratch/{name}"


@contextmanager
def _lease(log: Database, name: str) -> Iterator[None]:
    lease, owner = _lease_name(name), uuid4().hex
    log.write_now(lambda conn: ownership.acquire(conn, lease, 0, owner, TTL_S))
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(TTL_S / 4):
            with suppress(Transient):
                log.write_now(lambda conn: ownership.renew(conn, owner, TTL_S))

    renewing = threading.Thread(target=renew, name=lease, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        with suppress(Transient):
            log.write_now(lambda conn: ownership.release(conn, lease, 0, owner))
