"""Rebuild: fold the log into a new generation beside the active one, and swap with no downtime.

Publishers, other projections and readers notice nothing: the active generation is folded and read until the moment in
which the new one has everything that it has. Then it is *sealed* (nobody can advance it), the new one passes it, and
one transaction of the registry makes that the one that is read. A builder that dies is continued from its checkpoints.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

from events.archive import queries
from events.database import Database, Stores
from events.errors import Poison, RefoldError, Refused, Transient
from events.event import START, Position
from projections import generations
from projections.engine import checkpoints, ownership
from projections.engine.birth import create_store
from projections.engine.dead_letters import list_letters
from projections.engine.folder import PartitionFolder
from projections.engine.prefetch import Prefetching
from projections.engine.share import Job, fold_shares, is_portable
from projections.engine.source import ArchiveSource, lag
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection
from projections.swap import swap, unseal_abandoned
from projections.verify import verify as verify_generation

BATCH = 10_000
CACHE_ROWS = 100_000
"""Rows that a process keeps in memory; about 2 KB each."""

LEASE_TTL_S = 10.0
NEAR = 1_000
"""Events behind the archive from which the swap begins; what is left is folded while the old generation is sealed."""

WORTH_PROCESSES = 50_000
"""Events from which starting processes pays; it takes about a second."""

REPORT_EVERY_S = 0.2


class Cancelled(RefoldError):
    """The rebuild was cancelled; the generation that was being built is dropped."""


class CheckFailed(Poison):
    """The new generation was not made active, since it failed its check; the old one is read on."""


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is. ``phase``: folding, verifying, swapping, done. ``eta_s`` is None while it is unknown."""

    phase: str
    done: int
    total: int
    events_per_s: float
    eta_s: float | None


def rebuild(
    projection: Projection,
    stores: Stores,
    log: Database,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] = lambda: False,
    verify: bool = False,
    allow_dead_letters: bool = False,
    batch: int = BATCH,
    processes: int | None = None,
    lease_ttl_s: float = LEASE_TTL_S,
) -> Generation:
    """Build the next generation of a read model and make it the active one, which is returned. Blocking.

    Many events are folded by several ``processes`` (default: one a core). A build of the same code whose builder died
    is continued. With ``verify`` the new generation is compared with a second, independent refold before the swap.
    Raises Refused when somebody else builds this read model already, CheckFailed when the new generation differs from
    the second refold, or cannot fold events that the old one could (unless ``allow_dead_letters``), Cancelled when
    ``cancel`` said so.
    """
    owner = f"{socket.gethostname()}:{os.getpid()}/{uuid4().hex[:12]}"
    with _exclusive(projection.name, log, owner, lease_ttl_s):
        unseal_abandoned(projection.name, stores, log)
        generation = _begin(projection, stores, log)
        store = create_store(projection, stores, log, generation.name)
        try:
            build = _Build(store, generation, log, owner, batch, progress, cancel)
            build.fold_in_processes(stores, processes or os.cpu_count() or 1)
            return build.run(stores, verify=verify, allow_dead_letters=allow_dead_letters)
        except (Cancelled, CheckFailed):
            store.db.close()
            log.write_now(lambda conn: generations.set_state(conn, generation, "failed"))
            stores.drop_generation(generation.name)
            raise
        finally:
            store.db.close()


def rollback(projection_name: str, stores: Stores, log: Database, projection: Projection | None = None) -> Generation:
    """Make the generation active again that was read before the present one, which is returned.

    Where the running code made it (``projection`` given and matching), it first catches up, so that no read goes back;
    otherwise it stands where it was left, and is stale. Raises Refused when there is none.
    """
    owner = f"{socket.gethostname()}:{os.getpid()}/{uuid4().hex[:12]}"
    with _exclusive(projection_name, log, owner, LEASE_TTL_S):
        former = log.read_now(lambda conn: generations.previous(conn, projection_name))
        if former is None:
            raise Refused(f"{projection_name} has no earlier generation to go back to", code="no_generation")
        db = stores.generation(former.name)
        try:
            db.write_now(lambda conn: checkpoints.seal(conn, False))
            if projection is not None and former.matches(projection):
                build = _Build(GenerationStore(projection, db), former, log, owner, BATCH, None, lambda: False)
                build.claim()
                build.catch_up()
                return build.swap(stores)
            return swap(former, stores, log, lambda vector: None, _ours(projection_name, owner))
        finally:
            db.close()


def drop_old(projection_name: str, stores: Stores, log: Database, *, keep: int = 1) -> list[Generation]:
    """Drop retired and failed generations but the ``keep`` last ones to go back to; those that were dropped."""
    everything = log.read_now(lambda conn: generations.list_all(conn, projection_name))
    retired = sorted((g for g in everything if g.state == "retired"), key=lambda g: -(g.activated_ms or 0))
    dropped = retired[keep:] + [g for g in everything if g.state == "failed"]
    for generation in dropped:
        drop(generation, stores, log)
    return dropped


def drop(generation: Generation, stores: Stores, log: Database) -> None:
    """Drop one generation with all its rows. Raises Refused for one that is read or being built."""
    current = log.read_now(lambda conn: generations.get(conn, generation.projection, generation.number))
    if current.state in ("active", "building"):
        raise Refused(f"{current.name} is {current.state} and cannot be dropped", code="in_use")
    log.write_now(lambda conn: generations.set_state(conn, current, "dropped"))
    stores.drop_generation(current.name)


class _Build:
    """One generation in the hands of its builder."""

    def __init__(
        self,
        store: GenerationStore,
        generation: Generation,
        log: Database,
        owner: str,
        batch: int,
        progress: Callable[[Progress], None] | None,
        cancel: Callable[[], bool],
    ) -> None:
        self._store = store
        self._generation = generation
        self._log = log
        self._owner = owner
        self._batch = batch
        self._progress = progress
        self._cancel = cancel
        self._source = Prefetching(ArchiveSource(log))
        self._folders: list[PartitionFolder] = []
        self._began = time.monotonic()
        self._done_before: int | None = None
        self._reported = 0.0

    def run(self, stores: Stores, *, verify: bool, allow_dead_letters: bool) -> Generation:
        """Fold everything, check, swap."""
        try:
            self.claim()
            self.catch_up()
            active = self._log.read_now(partial(generations.active, projection=self._generation.projection))
            if active is not None and not allow_dead_letters:
                self._check_dead_letters(stores, active)
            if verify:
                self._report("verifying", force=True)
                self._check_refold(stores)
                self.catch_up()
            return self.swap(stores)
        finally:
            self._source.close()

    def fold_in_processes(self, stores: Stores, processes: int) -> None:
        """Fold what the archive holds now, partitions side by side, where that is worth starting processes."""
        marks = self._log.read_now(queries.read_watermarks)
        shares = _shares(self._positions(), marks, self._log.read_now(queries.read_epochs), processes)
        if len(shares) < 2 or self._lags()[0] < WORTH_PROCESSES or not is_portable(self._store.projection):
            return
        name = self._generation.name
        jobs = [
            Job(
                self._store.projection, stores.url, name, self._owner, {p: marks[p] for p in share},
                self._batch, CACHE_ROWS,
            )
            for share in shares
        ]  # fmt: skip
        fold_shares(jobs, self._watch)

    def claim(self) -> None:
        """Own every partition, where its checkpoint is."""
        partitions = sorted(self._positions())
        cache_rows = CACHE_ROWS // len(partitions)
        self._folders = [
            PartitionFolder.take_over(
                self._store, self._source, partition, self._owner, batch=self._batch, cache_rows=cache_rows
            )
            for partition in partitions
        ]

    def catch_up(self) -> None:
        """Fold until the archive is at most NEAR events ahead; publishing goes on meanwhile."""
        while True:
            marks = self._log.read_now(queries.read_watermarks)
            for folder in self._folders:
                self._fold(folder, marks.get(folder.claim.partition, START))
            if self._lags()[0] <= NEAR:
                return

    def swap(self, stores: Stores) -> Generation:
        """Seal the active generation, pass it, be read in its place; hand the partitions to the projectors."""

        def pass_it(vector: Mapping[int, Position]) -> None:
            self._report("swapping", force=True)
            for folder in self._folders:
                self._fold(folder, vector[folder.claim.partition])

        still_ours = _ours(self._generation.projection, self._owner)
        replaces = self._store.projection.replaces
        generation = swap(self._generation, stores, self._log, pass_it, still_ours, replaces)
        for folder in self._folders:
            folder.hand_over()
        self._report("done", force=True)
        return generation

    def _fold(self, folder: PartitionFolder, upto: Position) -> None:
        while folder.position < upto:
            if not folder.step(upto).read:
                return
            self._watch()

    def _watch(self) -> None:
        if self._cancel():
            raise Cancelled
        self._report("folding")

    def _positions(self) -> dict[int, Position]:
        return self._store.db.read_now(checkpoints.read_vector)

    def _lags(self) -> tuple[int, int]:
        """Events still to fold, and events in all."""
        marks, epochs = self._log.read_now(lambda conn: (queries.read_watermarks(conn), queries.read_epochs(conn)))
        position = self._positions()
        behind = sum(lag(position.get(p, START), mark, epochs.get(p, {})) for p, mark in marks.items())
        return behind, sum(lag(START, mark, epochs.get(p, {})) for p, mark in marks.items())

    def _report(self, phase: str, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._reported < REPORT_EVERY_S:
            return
        self._reported = now
        behind, total = self._lags()
        if self._done_before is None:
            self._done_before, self._began = total - behind, now
        rate = (total - behind - self._done_before) / max(1e-3, now - self._began)
        progress = Progress(phase, total - behind, total, rate, behind / rate if rate else None)
        with suppress(Transient):
            self._log.write_now(lambda conn: generations.set_progress(conn, self._generation, asdict(progress)))
        if self._progress is not None:
            self._progress(progress)

    def _check_dead_letters(self, stores: Stores, active: Generation) -> None:
        """Events that the old generation folded and the new one cannot are a fault of the new code."""
        new = self._store.db.read_now(partial(list_letters, waiting=False))
        if not new:
            return
        db = stores.generation(active.name)
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

    def _check_refold(self, stores: Stores) -> None:
        result = verify_generation(self._store.projection, stores, self._log, generation=self._generation)
        if not result.equal:
            raise CheckFailed(
                f"{self._generation.name} differs from a second refold with other batch sizes: its fold is not pure; "
                f"first difference: {result.first_differences[:1]}"
            )


def _shares(
    positions: Mapping[int, Position],
    marks: Mapping[int, Position],
    epochs: Mapping[int, Mapping[int, int | None]],
    count: int,
) -> list[list[int]]:
    """Partitions that lag, in at most ``count`` shares of about as many events each."""
    lags = {p: lag(positions[p], mark, epochs.get(p, {})) for p, mark in marks.items() if p in positions}
    shares: list[list[int]] = [[] for _ in range(count)]
    for partition in sorted((p for p in lags if lags[p]), key=lambda p: -lags[p]):
        min(shares, key=lambda share: sum(lags[p] for p in share)).append(partition)
    return [share for share in shares if share]


def _begin(projection: Projection, stores: Stores, log: Database) -> Generation:
    """The generation to build: the one whose builder died, if this code began it, or a new one."""
    begun = log.read_now(lambda conn: generations.building(conn, projection.name))
    if begun is not None and begun.matches(projection):
        return begun

    def create(conn: Connection) -> Generation:
        if begun is not None:
            generations.set_state(conn, begun, "failed")
        return generations.create(conn, projection)

    generation = log.write_now(create)
    if begun is not None:
        stores.drop_generation(begun.name)
    return generation


def _ours(projection_name: str, owner: str) -> Callable[[Connection], None]:
    """Raises Fenced, in a transaction of the log, when another builder has taken over from ``owner``."""
    return partial(ownership.confirm, name=ownership.rebuild_lease(projection_name), partition=0, owner=owner)


@contextmanager
def _exclusive(name: str, log: Database, owner: str, ttl_s: float) -> Iterator[None]:
    """Hold the lease of whoever builds this read model, renewed by a thread of its own."""
    lease = ownership.rebuild_lease(name)
    if not log.write_now(lambda conn: ownership.acquire(conn, lease, 0, owner, ttl_s)):
        raise Refused(
            f"{name} is being rebuilt already: watch it with `refold status`, or cancel it where it runs "
            f"(if its process died, its lease ends within {ttl_s:.0f} s and this command continues its work)",
            code="already_rebuilding",
        )
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(log, owner, ttl_s, ended), name=f"lease {lease}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        with suppress(Transient):
            log.write_now(lambda conn: ownership.release(conn, lease, 0, owner))


def _renew(log: Database, owner: str, ttl_s: float, ended: threading.Event) -> None:
    while not ended.wait(ttl_s / 4):
        with suppress(Transient):
            log.write_now(lambda conn: ownership.renew(conn, owner, ttl_s))
