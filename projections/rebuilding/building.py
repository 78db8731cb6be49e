"""One generation in the hands of its builder: begun or continued, watched, checked, swapped in, or given up.

Whoever builds a read model holds its lease, renewed by a thread of its own; who lost it may neither swap nor drop.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

from events.archive import queries
from events.database import Database, Stores
from events.errors import Fenced, Poison, Refused, Transient
from events.event import START, Position
from projections import generations
from projections.engine import checkpoints, ownership
from projections.engine.birth import create_store
from projections.engine.dead_letters import list_letters
from projections.engine.discards import discarded
from projections.engine.folder import PartitionFolder
from projections.engine.source import Source, lag
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.progress import Cancelled, Progress
from projections.rebuilding.swap import swap, unseal_abandoned
from projections.rebuilding.verify import verify

BATCH = 10_000
CACHE_ROWS = 100_000
"""Rows that a process keeps in memory; about 2 KB each."""

LEASE_TTL_S = 10.0
REPORT_EVERY_S = 0.2


class CheckFailed(Poison):
    """The new generation was not made active, since it failed its check; the old one is read on."""


class Lease:
    """The right to build one read model. ``lost`` once another builder has taken it over."""

    def __init__(self, projection_name: str, owner: str) -> None:
        self.projection_name = projection_name
        self.owner = owner
        self.lost = False

    def confirm(self, conn: Connection) -> None:
        """Keep it until this transaction of the log ends. Raises Fenced when it is lost."""
        ownership.confirm(conn, ownership.rebuild_lease(self.projection_name), 0, self.owner)

    def renew(self, conn: Connection, ttl_s: float) -> None:
        """Prolong it, or find out that it is lost."""
        held = ownership.renew(conn, self.owner, ttl_s)
        self.lost = (ownership.rebuild_lease(self.projection_name), 0) not in held


@contextmanager
def lease(projection_name: str, log: Database, ttl_s: float = LEASE_TTL_S) -> Iterator[Lease]:
    """Hold the lease of whoever builds this read model. Raises Refused while somebody else does."""
    held = Lease(projection_name, f"{socket.gethostname()}:{os.getpid()}/{uuid4().hex[:12]}")
    name = ownership.rebuild_lease(projection_name)
    if not log.write_now(lambda conn: ownership.acquire(conn, name, 0, held.owner, ttl_s)):
        raise Refused(
            f"{projection_name} is being rebuilt already: watch it with `refold status`, or cancel it where it runs "
            f"(if its process died, its lease ends within {ttl_s:.0f} s and this command continues its work)",
            code="already_rebuilding",
        )
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(held, log, ttl_s, ended), name=f"lease {name}", daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        ended.set()
        renewing.join()
        with suppress(Transient):
            log.write_now(lambda conn: ownership.release(conn, name, 0, held.owner))


def _renew(held: Lease, log: Database, ttl_s: float, ended: threading.Event) -> None:
    while not ended.wait(ttl_s / 4):
        with suppress(Transient):
            log.write_now(partial(held.renew, ttl_s=ttl_s))


class Build:
    """A generation of one read model, and how far it is. ``watch`` between two steps; ``close`` at the end."""

    def __init__(
        self,
        store: GenerationStore,
        generation: Generation,
        stores: Stores,
        log: Database,
        held: Lease,
        progress: Callable[[Progress], None] | None = None,
        cancel: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store = store
        self.generation = generation
        self.name = generation.projection
        self.folders: dict[int, PartitionFolder] = {}
        self.held = held
        self._stores = stores
        self._log = log
        self._progress = progress
        self._cancel = cancel
        self._began = time.monotonic()
        self._done_before: int | None = None
        self._reported = 0.0
        self._given_up = False

    @classmethod
    def begin(
        cls,
        projection: Projection,
        stores: Stores,
        log: Database,
        held: Lease,
        progress: Callable[[Progress], None] | None,
        cancel: Callable[[], bool],
    ) -> Build:
        """Begin the next generation, or continue the one of the same code whose builder died."""
        unseal_abandoned(projection.name, stores, log)
        generation = _next(projection, stores, log, held)
        store = create_store(projection, stores, log, generation.name)
        return cls(store, generation, stores, log, held, progress, cancel)

    def claim(self, source: Source, batch: int = BATCH, cache_rows: int = CACHE_ROWS) -> None:
        """Own every partition, where its checkpoint is. Raises Fenced while the generation is sealed."""
        positions = sorted(self.positions().items())
        for partition, position in positions:
            # here a death would be the builder's
            refused = self._log.read_now(
                partial(discarded, projection=self.store.projection, partition=partition, after=position)
            )
            self.folders[partition] = PartitionFolder.take_over(
                self.store, source, partition, self.held.owner,
                batch=batch, cache_rows=cache_rows // len(positions), refused=refused,
            )  # fmt: skip

    def positions(self) -> dict[int, Position]:
        """The checkpoint of each partition."""
        return self.store.db.read_now(checkpoints.read_vector)

    def lags(self) -> tuple[int, int]:
        """Events still to fold, and events in all."""
        marks, epochs = self._log.read_now(lambda conn: (queries.read_watermarks(conn), queries.read_epochs(conn)))
        position = self.positions()
        behind = sum(lag(position.get(p, START), mark, epochs.get(p, {})) for p, mark in marks.items())
        return behind, sum(lag(START, mark, epochs.get(p, {})) for p, mark in marks.items())

    def watch(self) -> None:
        """Tell how far it is. Raises Cancelled when it is to end, Fenced when another builder goes on with it."""
        if self._cancel():
            raise Cancelled(f"the rebuild of {self.name} was cancelled; {self.generation.name} is dropped")
        if self.held.lost:
            raise Fenced(f"the rebuild of {self.name} stood still for too long: another process goes on with it")
        self.report("folding")

    def report(self, phase: str, *, force: bool = False) -> None:
        """Show how far it is, here and in the registry, every REPORT_EVERY_S or when ``force`` says so."""
        now = time.monotonic()
        if not force and now - self._reported < REPORT_EVERY_S:
            return
        self._reported = now
        behind, total = self.lags()
        if self._done_before is None:
            self._done_before, self._began = total - behind, now
        rate = (total - behind - self._done_before) / max(1e-3, now - self._began)
        progress = Progress(phase, total - behind, total, rate, behind / rate if rate else None)
        with suppress(Transient):
            self._log.write_now(lambda conn: generations.set_progress(conn, self.generation, asdict(progress)))
        if self._progress is not None:
            self._progress(progress)

    def check(self, *, dead_letters: bool, refold: bool, max_events_per_s: float | None) -> None:
        """Raise CheckFailed when it lost events that the active generation has, or differs from a second refold."""
        active = self._log.read_now(partial(generations.active, projection=self.name))
        if dead_letters and active is not None:
            self._check_dead_letters(active)
        if refold:
            self.report("verifying", force=True)
            self._check_refold(max_events_per_s)

    def fold_to(self, vector: Mapping[int, Position]) -> None:
        """Fold what is claimed up to these positions, as fast as it goes."""
        for partition, folder in self.folders.items():
            while folder.position < vector[partition] and folder.step(vector[partition]).read:
                self.watch()

    def swap(self) -> Generation:
        """Seal the active generation, pass it, be read in its place; hand the partitions to the projectors."""

        def pass_it(vector: Mapping[int, Position]) -> None:
            self.report("swapping", force=True)
            self.fold_to(vector)

        replaces = self.store.projection.replaces
        generation = swap(self.generation, self._stores, self._log, pass_it, self.held.confirm, replaces)
        with suppress(Transient):  # it holds; what follows only spares others some waiting
            for folder in self.folders.values():
                folder.hand_over()
            self.report("done", force=True)
        return generation

    def give_up(self, state: str) -> None:
        """End for good as ``failed`` or ``cancelled``: nobody folds it on, and ``close`` drops it.

        Unless another builder goes on with it by now.
        """

        def work(conn: Connection) -> None:
            self.held.confirm(conn)
            generations.set_state(conn, self.generation, state)

        with suppress(Fenced):
            self._log.write_now(work)
            self._given_up = True
            # processes that fold it for us find themselves fenced, and go on with the others
            self.store.db.write_now(partial(checkpoints.seal, sealed=True))

    def close(self) -> None:
        """Close its store, and drop it when it was given up."""
        self.store.db.close()
        if self._given_up:
            self._stores.drop_generation(self.generation.name)

    def _check_dead_letters(self, active: Generation) -> None:
        """Events that the old generation folded and the new one cannot are a fault of the new code."""
        new = self.store.db.read_now(partial(list_letters, waiting=False))
        if not new:
            return
        db = self._stores.generation(active.name)
        try:
            vector, old = db.read_now(lambda conn: (checkpoints.read_vector(conn), list_letters(conn, limit=1_000_000)))
        finally:
            db.close()
        explained = {(letter.partition, letter.position) for letter in old}
        lost = [
            letter
            for letter in new
            if (letter.partition, letter.position) not in explained and letter.position <= vector[letter.partition]
        ]
        if lost:
            raise CheckFailed(
                f"{len(lost)} events that {active.name} holds cannot be folded by this code, first {lost[0].type} "
                f"{lost[0].event_id!r}: {lost[0].error}. {active.name} is read on; "
                "mend the projection, or allow dead letters"
            )

    def _check_refold(self, max_events_per_s: float | None) -> None:
        result = verify(
            self.store.projection, self._stores, self._log,
            generation=self.generation, cancel=self._cancel, max_events_per_s=max_events_per_s,
        )  # fmt: skip
        if not result.equal:
            raise CheckFailed(
                f"{self.generation.name} differs from a second refold with other batch sizes: its fold is not pure; "
                f"first difference: {result.first_differences[:1]}"
            )


def _next(projection: Projection, stores: Stores, log: Database, held: Lease) -> Generation:
    """The generation to build: the one whose builder died, if this code began it, or a new one."""
    begun = log.read_now(lambda conn: generations.building(conn, projection.name))
    if begun is not None and begun.matches(projection):
        return begun

    def create(conn: Connection) -> Generation:
        held.confirm(conn)  # first: who takes the lease over meanwhile waits, and finds this generation
        if begun is not None:
            generations.set_state(conn, begun, "failed")
        return generations.create(conn, projection)

    generation = log.write_now(create)
    if begun is not None:
        stores.drop_generation(begun.name)
    return generation
