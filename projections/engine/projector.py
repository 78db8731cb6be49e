"""The projector: keeps read models up to date with the archive, together with however many others there are."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

from events.archive import store as archive
from events.database import Database, Stores
from events.errors import SetupError, Transient
from projections import generations
from projections.engine import checkpoints, ownership, reports
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.gate import Gate
from projections.engine.memo import Shared
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.engine.worker import Observer, PartitionWorker, Unobserved
from projections.generations import Generation
from projections.projection import Projection

logger = logging.getLogger(__name__)

HUNGRY_S = 0.1
"""How often a worker that holds less than its share looks for partitions that were given up."""

FENCED_S = 0.05
"""How soon the registry is asked whether a worker was fenced because another generation is read by now."""

PATIENCE = 10
"""Times that a batch in which everything fails is held back before it is parked: for about 20 s in all."""


@dataclass
class _Served:
    """The generation of a projection that this worker folds, and the partitions of it that it owns."""

    generation: Generation
    store: GenerationStore
    workers: dict[int, PartitionWorker] = field(default_factory=dict)
    sealed_s: float | None = None
    """When it was first seen sealed."""
    hungry: bool = False
    """Whether this worker holds fewer partitions than every worker should."""


class Projector:
    """Folds the active generation of each projection whose fingerprint is the running code's.

    A generation of another fingerprint is never folded; it stays readable and is ``stale`` until a rebuild replaces
    it. ``worker_id`` names this process in leases; a unique suffix tells its lives apart. ``batch`` events at most are
    folded in one transaction, ``cache_rows`` rows at most are kept in memory for each owned partition. It looks for
    partitions to take over or to give up every ``balance_s`` seconds.
    """

    def __init__(
        self,
        projections: Sequence[Projection],
        stores: Stores,
        log: Database,
        worker_id: str = "",
        *,
        batch: int = 500,
        cache_rows: int = 50_000,
        lease_ttl_s: float = 10.0,
        poll_s: float = 0.5,
        balance_s: float = 0.5,
        threads: int = 4,
        observer: Observer | None = None,
    ) -> None:
        self.projections = {projection.name: projection for projection in projections}
        self.owner = f"{worker_id or f'{socket.gethostname()}:{os.getpid()}'}/{uuid4().hex[:12]}"
        self.stale: set[str] = set()
        self._stores = stores
        self._log = log
        # half a poll: a poll asks the archive, whatever was heard of it
        self._source = Shared(ArchiveSource(log), poll_s / 2)
        self._batch = batch
        self._cache_rows = cache_rows
        self._ttl_s = lease_ttl_s
        self._poll_s = poll_s
        self._balance_s = min(balance_s, lease_ttl_s / 4)
        self._observer = observer or Unobserved()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fold")
        self._gate = Gate()
        self._served: dict[str, _Served] = {}
        self._reporter = reports.Reporter()
        self._partitions = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._fenced = asyncio.Event()

    async def start(self) -> None:
        """Create first generations where there are none, take a fair share of partitions, begin to fold.

        Raises SetupError when the log was not created yet or a projection cannot run.
        """
        partitions = await self._log.read(archive.partition_count)
        if partitions is None:
            raise SetupError("the log was not created yet: start the backend (`refold up`) first")
        self._partitions = partitions
        for projection in self.projections.values():
            await asyncio.to_thread(
                ensure_first_generation, projection, self._stores, self._log, self.owner, self._ttl_s
            )
        await self._balance()
        self._tasks = [
            asyncio.create_task(self._every(lambda: self._ttl_s / 4, self._stopping, self._renew), name="renew leases"),
            asyncio.create_task(
                self._every(self._until_next_look_s, self._fenced, self._balance), name="balance partitions"
            ),
        ]

    def wake(self, partition: int) -> None:
        """The archive of this partition has advanced. Cheap; never blocks."""
        self._source.moved(partition)
        for served in self._served.values():
            if partition in served.workers:
                served.workers[partition].wake()

    async def stop(self) -> None:
        """Finish the steps that run, hand everything over, so that others go on at once."""
        self._stopping.set()
        self._fenced.set()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*(self._leave(name) for name in list(self._served)))
        self._executor.shutdown(wait=False)

    async def wait(self) -> None:
        """Until ``stop`` is called, or a task of the projector fails by a fault of ours, which is raised."""
        await asyncio.gather(*self._tasks)

    def paused(self) -> dict[str, str]:
        """Partitions of ours that wait, by name, with the reason."""
        workers = [worker for served in self._served.values() for worker in served.workers.values()]
        return {worker.name: worker.paused for worker in workers if worker.paused}

    def folded(self, projection: str, read: int, applied: int, seconds: float) -> None:
        """As ``Observer.folded``, from a worker of ours."""
        self._observer.folded(projection, read, applied, seconds)

    def fenced(self, projection: str) -> None:
        """As ``Observer.fenced``: another generation may have taken the place of the one that is folded."""
        self._observer.fenced(projection)
        self._fenced.set()

    async def _every(
        self, seconds: Callable[[], float], sooner: asyncio.Event, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Work every so often, and shortly after ``sooner`` was set."""
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(sooner.wait(), seconds())
                if self._stopping.is_set():
                    return
                # all partitions of a generation are fenced together
                await asyncio.sleep(FENCED_S)
                sooner.clear()
            try:
                await work()
            except Transient as error:
                logger.warning("projector: %s", error)

    async def _renew(self) -> None:
        told = self._reporter.look(
            ((served.generation.name, partition), worker.folded, worker.paused)
            for served in self._served.values()
            for partition, worker in served.workers.items()
        )
        held = await self._log.write(partial(self._prolong, told=told))
        for served in list(self._served.values()):
            lost = [p for p in served.workers if (served.generation.name, p) not in held]
            await self._give_up(served, lost)

    def _prolong(self, conn: Connection, told: Mapping[reports.Unit, reports.Report]) -> set[reports.Unit]:
        held = ownership.renew(conn, self.owner, self._ttl_s)
        reports.write(conn, self.owner, {unit: report for unit, report in told.items() if unit in held})
        return held

    def _until_next_look_s(self) -> float:
        """Whoever holds less than its share looks often: somebody is about to give something up."""
        return HUNGRY_S if any(served.hungry for served in self._served.values()) else self._balance_s

    async def _balance(self) -> None:
        """Follow the registry to the active generations, then hold a fair share of each one's partitions."""
        seen = await self._log.read(self._look)
        for name, (generation, survey) in seen.items():
            await self._follow(self.projections[name], generation)
            if name in self._served:
                await self._share(self._served[name], survey)

    def _look(self, conn: Connection) -> dict[str, tuple[Generation | None, ownership.Survey]]:
        serving = {name: generations.serving(conn, projection) for name, projection in self.projections.items()}
        return {
            name: (generation, ownership.survey(conn, "" if generation is None else generation.name, self._ttl_s))
            for name, generation in serving.items()
        }

    async def _follow(self, projection: Projection, generation: Generation | None) -> None:
        name = projection.name
        served = self._served.get(name)
        if served is not None and (generation is None or generation.name != served.generation.name):
            await self._leave(name)
        if generation is None or name in self._served:
            return
        if not generation.matches(projection):
            if name not in self.stale:
                logger.warning("%s is stale: other code made %s; see `refold status`", name, generation.name)
            self.stale.add(name)
            return
        self.stale.discard(name)
        self._served[name] = _Served(generation, GenerationStore(projection, self._stores.generation(generation.name)))

    async def _share(self, served: _Served, seen: ownership.Survey) -> None:
        name = served.generation.name
        for partition, worker in list(served.workers.items()):
            if worker.task.done():
                await worker.task
                del served.workers[partition]
        # ours by a commit whose answer got lost, or not given back when the store was away: nobody else may take them
        orphans = {p for p, owner in seen.owners.items() if owner == self.owner and p not in served.workers}
        await self._unseal_if_abandoned(served)
        if self.owner not in seen.workers:
            await self._log.write(partial(self._join, name=name))
        workers = len(seen.workers | {self.owner})
        share = ownership.fair_share(self._partitions, workers)
        await self._give_up(served, sorted(served.workers)[share:])
        owned = (seen.owners.keys() - orphans) | served.workers.keys()
        free = [p for p in range(self._partitions) if p not in owned]
        wanted = share - len(served.workers)
        if wanted > 0 and free:
            for partition in await self._log.write(lambda conn: self._acquire(conn, name, free, wanted)):
                served.workers[partition] = self._worker(served, partition)
        for partition in sorted(orphans - served.workers.keys()):
            await self._log.write(partial(ownership.release, name=name, partition=partition, owner=self.owner))
        served.hungry = len(served.workers) < self._partitions // workers

    def _join(self, conn: Connection, name: str) -> None:
        ownership.join(conn, name, self.owner, self._ttl_s)
        reports.clear(conn)

    def _acquire(self, conn: Connection, name: str, free: Sequence[int], wanted: int) -> list[int]:
        taken: list[int] = []
        for partition in free:
            if len(taken) < wanted and ownership.acquire(conn, name, partition, self.owner, self._ttl_s):
                taken.append(partition)
        return taken

    def _worker(self, served: _Served, partition: int) -> PartitionWorker:
        claim = partial(
            PartitionFolder.take_over, served.store, self._source, partition, self.owner,
            batch=self._batch, cache_rows=self._cache_rows, patience=PATIENCE,
        )  # fmt: skip
        return PartitionWorker(
            served.store.projection.name, f"{served.generation.name}/{partition}", claim, self._gate, self._executor,
            self._poll_s, self,
        )  # fmt: skip

    async def _give_up(self, served: _Served, partitions: Sequence[int]) -> None:
        """Stop these partitions between two batches; each is free as soon as it has stopped."""
        workers = {p: served.workers.pop(p) for p in partitions if p in served.workers}
        await asyncio.gather(*(self._release(served, partition, worker) for partition, worker in workers.items()))

    async def _release(self, served: _Served, partition: int, worker: PartitionWorker) -> None:
        await worker.stop()
        name = served.generation.name
        with suppress(Transient):
            await self._log.write(lambda conn: ownership.release(conn, name, partition, self.owner))

    async def _leave(self, name: str) -> None:
        served = self._served.pop(name)
        await self._give_up(served, list(served.workers))
        with suppress(Transient):
            await self._log.write(partial(ownership.leave, generation=served.generation.name, owner=self.owner))
        await asyncio.to_thread(served.store.db.close)

    async def _unseal_if_abandoned(self, served: _Served) -> None:
        """A rebuild seals the generation that it replaces; one that died in that moment must not stop it for ever.

        One that replaces this read model by another of a new name holds another lease: it is given time for its swap.
        """
        if not await served.store.db.read(checkpoints.is_sealed):
            served.sealed_s = None
            return
        served.sealed_s = served.sealed_s or time.monotonic()
        if time.monotonic() - served.sealed_s < self._ttl_s:
            return
        lease = ownership.rebuild_lease(served.generation.projection)
        current = await self._log.read(partial(generations.active, projection=served.generation.projection))
        abandoned = not await self._log.read(lambda conn: ownership.is_held(conn, lease))
        if abandoned and current is not None and current.number == served.generation.number:
            await served.store.db.write(lambda conn: checkpoints.seal(conn, False))
