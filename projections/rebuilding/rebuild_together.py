"""Rebuilding several read models in one pass: each event of the archive is read and decoded once for all of them.

Folding costs what it costs; what is shared is reading, decoding, and the processes that do it. Each read model is then
checked and swapped by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from events.archive import queries
from events.database import Database, Stores
from events.errors import RefoldError
from events.event import Position
from projections.engine.cores import cores
from projections.engine.crew import fold_in_processes
from projections.engine.lockstep import Lockstep
from projections.engine.memo import Remembering
from projections.engine.pace import Pace
from projections.engine.prefetch import Prefetching
from projections.engine.share import Job, Share, is_portable
from projections.engine.source import ArchiveSource, lags
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.building import BATCH, CACHE_ROWS, LEASE_TTL_S, Build, CheckFailed, lease
from projections.rebuilding.progress import Cancelled, Progress

NEAR = 1_000
"""Events behind the archive from which the swap begins; what is left is folded while the old generation is sealed."""

WORTH_PROCESSES = 50_000
"""Events from which starting processes pays, be it one: it takes about a second, and the builder outlives its death."""


class NotAllRebuilt(RefoldError):
    """Some of the read models were not rebuilt; the others were, and are read from their new generations.

    ``built`` are the new active generations by projection, ``failures`` why the others are not among them.
    """

    def __init__(self, built: Mapping[str, Generation], failures: Mapping[str, RefoldError]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in failures.items()))
        self.built = dict(built)
        self.failures = dict(failures)


def rebuild_together(
    projections: Sequence[Projection],
    stores: Stores,
    log: Database,
    *,
    progress: Callable[[str, Progress], None] | None = None,
    cancel: Callable[[str], bool] = lambda name: False,
    verify: bool = False,
    allow_dead_letters: bool = False,
    batch: int = BATCH,
    processes: int | None = None,
    lease_ttl_s: float = LEASE_TTL_S,
    max_events_per_s: float | None = None,
) -> dict[str, Generation]:
    """Build the next generation of each read model in one pass over the archive; the active ones, by projection.

    As ``rebuild`` does for one. ``progress`` and ``cancel`` take the name of a projection. ``max_events_per_s`` limits
    how many events are read from the archive over all processes, each counted once however many read models fold it.
    A read model that fails does not take the others down: one that somebody else rebuilds is left out from the
    beginning; one that is cancelled, cannot go on or fails its check is left out from then on; the others are built and
    swapped. When all is done NotAllRebuilt is raised if any failed; it tells what was built, and why the others were
    not. A cancelled generation, or one that failed its check, is dropped; one that failed otherwise is continued when
    it is rebuilt again.
    """
    with ExitStack() as held:
        shared = _Pass(stores, log, max_events_per_s, batch, held)
        for name, projection in {projection.name: projection for projection in projections}.items():
            told = None if progress is None else partial(progress, name)
            with shared.excusing(name):
                owned = held.enter_context(lease(name, log, lease_ttl_s))
                shared.builds[name] = Build.begin(projection, stores, log, owned, told, partial(cancel, name))
                held.callback(shared.builds[name].close)
        with shared.excusing(*shared.builds):
            shared.fold(processes or cores())
            shared.finish(refold=verify, dead_letters=not allow_dead_letters)
    if shared.failures:
        raise NotAllRebuilt(shared.built, shared.failures)
    return shared.built


class _Pass:
    """The read models that are still being built, those that are done, and why the others are not."""

    def __init__(
        self, stores: Stores, log: Database, max_events_per_s: float | None, batch: int, opened: ExitStack
    ) -> None:
        self.builds: dict[str, Build] = {}
        self.built: dict[str, Generation] = {}
        self.failures: dict[str, RefoldError] = {}
        self._stores = stores
        self._log = log
        self._limit = max_events_per_s
        self._pace = Pace(max_events_per_s)
        self._batch = batch
        self._opened = opened

    @contextmanager
    def excusing(self, *names: str) -> Iterator[None]:
        """What is raised here is the failure of these read models, as far as they are not done, and of no other."""
        try:
            yield
        except RefoldError as error:
            for name in names:
                if name not in self.built and name not in self.failures:
                    self.failures[name] = error
                build = self.builds.pop(name, None)
                if build is not None and isinstance(error, Cancelled | CheckFailed):
                    build.give_up("cancelled" if isinstance(error, Cancelled) else "failed")

    def watch(self) -> bool:
        """Let each tell how far it is, or end; whether any is left."""
        for name, build in list(self.builds.items()):
            with self.excusing(name):
                build.watch()
        return bool(self.builds)

    def fold(self, processes: int) -> None:
        """Fold the archive: what it holds now in processes where that is worth it, the rest here."""
        self._fold_in_processes(processes)
        source = Prefetching(ArchiveSource(self._log))
        self._opened.callback(source.close)
        shared = Remembering(source) if len(self.builds) > 1 else source
        for name, build in list(self.builds.items()):
            with self.excusing(name):
                build.claim(shared, self._pace.batch(self._batch), CACHE_ROWS // len(self.builds))
        self._catch_up()

    def finish(self, *, refold: bool, dead_letters: bool) -> None:
        """Check and swap one after the other; the rest catches up once more meanwhile."""
        for name, build in list(self.builds.items()):
            with self.excusing(name):
                build.check(dead_letters=dead_letters, refold=refold, max_events_per_s=self._limit)
            self._catch_up()
            if name in self.builds:
                with self.excusing(name):
                    self.built[name] = build.swap()
                    del self.builds[name]

    def _fold_in_processes(self, processes: int) -> None:
        marks, epochs = self._log.read_now(lambda conn: (queries.read_watermarks(conn), queries.read_epochs(conn)))
        behind = lags(marks, epochs, [build.positions() for build in self.builds.values()])
        portable = all(is_portable(build.store.projection) for build in self.builds.values())
        if not portable or not behind or sum(behind.values()) < WORTH_PROCESSES:
            return
        crew = min(processes, len(behind))
        job = Job(
            tuple(
                Share(build.store.projection, build.generation.name, build.held.owner)
                for build in self.builds.values()
            ),
            self._stores.url, {partition: marks[partition] for partition in behind}, self._batch,
            CACHE_ROWS // len(self.builds), None if self._limit is None else self._limit / crew,
        )  # fmt: skip
        fold_in_processes(job, list(behind), crew, self.watch)

    def _catch_up(self) -> None:
        """Fold until the archive is at most NEAR events ahead; publishing goes on meanwhile."""
        while self.builds:
            for partition, mark in self._log.read_now(queries.read_watermarks).items():
                self._fold_partition(partition, mark)
            if all(build.lags()[0] <= NEAR for build in self.builds.values()):
                return

    def _fold_partition(self, partition: int, upto: Position) -> None:
        lockstep = Lockstep({name: build.folders[partition] for name, build in self.builds.items()})
        while read := lockstep.step(upto):
            for name, error in lockstep.failed.items():
                with self.excusing(name):
                    raise error
            self._pace.hold(read, self.watch)
            self.watch()
            for name in lockstep.folders.keys() - self.builds.keys():
                lockstep.leave(name)
