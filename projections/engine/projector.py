"""The projector: keeps read models up to date with the archive, together with however many others there are."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
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
from projections.engine import checkpoints, ownership
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.gate import Gate
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.engine.worker import PartitionWorker
from projections.generations import Generation
from projections.projection import Projection

logger = logging.getLogger(__name__)

PATIENCE = 5
"""Times that a batch in which everything fails is held back before it is parked."""


@dataclass
class _Served:
    """The generation of a projection that this worker folds, and the partitions of it that it owns."""

    generation: Generation
    store: GenerationStore
    workers: dict[int, PartitionWorker] = field(default_factory=dict)


class Projector:
    """Folds the active generation of each projection whose fingerprint is the running code's.

    A generation of another fingerprint is never folded; it stays readable and is ``stale`` until a rebuild replaces
    it. ``worker_id`` names this process in leases; a unique suffix tells its lives apart. ``batch`` events at most are
    folded in one transaction, ``cache_rows`` rows at most are kept in memory for each owned partition.
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
        threads: int = 4,
    ) -> None:
        self.projections = {projection.name: projection for projection in projections}
        self.owner = f"{worker_id or f'{socket.gethostname()}:{os.getpid()}'}/{uuid4().hex[:12]}"
        self.stale: set[str] = set()
        self._stores = stores
        self._log = log
        self._source = ArchiveSource(log)
        self._batch = batch
        self._cache_rows = cache_rows
        self._ttl_s = lease_ttl_s
        self._poll_s = poll_s
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fold")
        self._gate = Gate()
        self._served: dict[str, _Served] = {}
        self._partitions = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

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
            asyncio.create_task(self._every(self._ttl_s / 4, self._renew), name="renew leases"),
            asyncio.create_task(self._every(self._poll_s, self._balance), name="balance partitions"),
        ]

    def wake(self, partition: int) -> None:
        """The archive of this partition has advanced. Cheap; never blocks."""
        for served in self._served.values():
            if partition in served.workers:
                served.workers[partition].wake()

    async def stop(self) -> None:
        """Finish the steps that run, hand everything over, so that others go on at once."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        for name in list(self._served):
            await self._leave(name)
        self._executor.shutdown(wait=False)

    async def wait(self) -> None:
        """Until ``stop`` is called, or a task of the projector fails by a fault of ours, which is raised."""
        await asyncio.gather(*self._tasks)

    def paused(self) -> dict[str, str]:
        """Partitions of ours that wait, by name, with the reason."""
        workers = [worker for served in self._served.values() for worker in served.workers.values()]
        return {worker.name: worker.paused for worker in workers if worker.paused}

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
                return
            try:
                await work()
            except Transient as error:
                logger.warning("projector: %s", error)

    async def _renew(self) -> None:
        held = await self._log.write(lambda conn: ownership.renew(conn, self.owner, self._ttl_s))
        for served in self._served.values():
            lost = [p for p in served.workers if (served.generation.name, p) not in held]
            await self._give_up(served, lost)

    async def _balance(self) -> None:
        """Follow the registry to the active generations, then hold a fair share of each one's partitions."""
        for name, projection in self.projections.items():
            generation = await self._log.read(partial(generations.serving, projection=projection))
            await self._follow(projection, generation)
            if name in self._served:
                await self._share(self._served[name])

    async def _follow(self, projection: Projection, generation: Generation | None) -> None:
        name = projection.name
        served = self._served.get(name)
        if served is not None and (generation is None or generation.name != served.generation.name):
            await self._leave(name)
        if generation is None or name in self._served:
            return
        if not generation.matches(projection):
            if name not in self.stale:
                logger.warning("%s is stale: other code made it; run `refold rebuild %s`", generation.name, name)
            self.stale.add(name)
            return
        self.stale.discard(name)
        self._served[name] = _Served(generation, GenerationStore(projection, self._stores.generation(generation.name)))

    async def _share(self, served: _Served) -> None:
        name = served.generation.name
        for partition, worker in list(served.workers.items()):
            if worker.task.done():
                await worker.task
                del served.workers[partition]
        await self._unseal_if_abandoned(served)
        seen = await self._log.read(partial(ownership.survey, generation=name))
        if self.owner not in seen.workers:
            await self._log.write(partial(ownership.join, generation=name, owner=self.owner, ttl_s=self._ttl_s))
        share = ownership.fair_share(self._partitions, len(seen.workers | {self.owner}))
        await self._give_up(served, sorted(served.workers)[share:])
        free = [p for p in range(self._partitions) if p not in served.workers and seen.owners.get(p) is None]
        wanted = share - len(served.workers)
        if wanted > 0 and free:
            for partition in await self._log.write(lambda conn: self._acquire(conn, name, free, wanted)):
                served.workers[partition] = self._worker(served, partition)

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
        return PartitionWorker(f"{served.generation.name}/{partition}", claim, self._gate, self._executor, self._poll_s)

    async def _give_up(self, served: _Served, partitions: Sequence[int]) -> None:
        """Stop these partitions between two batches and return their leases."""
        workers = [
            (partition, served.workers.pop(partition)) for partition in partitions if partition in served.workers
        ]
        await asyncio.gather(*(worker.stop() for _, worker in workers))

        def release(conn: Connection) -> None:
            for partition, _ in workers:
                ownership.release(conn, served.generation.name, partition, self.owner)

        if workers:
            with suppress(Transient):
                await self._log.write(release)

    async def _leave(self, name: str) -> None:
        served = self._served.pop(name)
        await self._give_up(served, list(served.workers))
        with suppress(Transient):
            await self._log.write(partial(ownership.leave, generation=served.generation.name, owner=self.owner))
        await asyncio.to_thread(served.store.db.close)

    async def _unseal_if_abandoned(self, served: _Served) -> None:
        """A rebuild seals the generation that it replaces; one that died in that moment must not stop it for ever."""
        if not await served.store.db.read(checkpoints.is_sealed):
            return
        lease = ownership.rebuild_lease(served.generation.projection)
        current = await self._log.read(partial(generations.active, projection=served.generation.projection))
        abandoned = not await self._log.read(lambda conn: ownership.is_held(conn, lease))
        if abandoned and current is not None and current.number == served.generation.number:
            await served.store.db.write(lambda conn: checkpoints.seal(conn, False))
