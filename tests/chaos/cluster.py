"""A backend spread over processes of its own, any of which a scenario may kill, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from events.archive.schema import event_log
from events.errors import Transient
from projections.rebuilding.verify import verify
from services.composition import Backend
from services.settings import Settings
from tests.instance import NO_MODEL, WITH_MODEL
from tests.redis_cluster import AnyServer
from tests.servers import redis_server
from tests.warm import WarmProcess

LEASE_S = 1.0
PATIENCE_S = 120.0
ROLES = {"archiver": "archiver", "projector-a": "projector", "projector-b": "projector", "reactors": "reactors"}
"""Processes by name, and the role that each takes."""

TERMINAL = ("settlement.recorded", "settlement.degraded")


@dataclass
class Role:
    """One process of the backend; it is started again whenever it is killed."""

    name: str
    role: str
    environ: dict[str, str]
    log: Path
    process: WarmProcess | None = None
    born: float = 0.0

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = WarmProcess(
                "services.worker", "--roles", self.role, environ=self.environ, stdout=output, stderr=output
            )
        self.born = time.monotonic()

    def send(self, what: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended by itself:\n{self.log.read_text()[-4000:]}"
        self.process.send_signal(what)

    def kill(self) -> None:
        """``kill -9``, and start again."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.start()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(60)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.born


@dataclass
class Cluster:
    """Redis, the roles, and a backend in the test's own process to publish to and to look with."""

    redis: AnyServer
    roles: dict[str, Role]
    backend: Backend
    acknowledged: set[str] = field(default_factory=set)

    async def publish(self, raws: Sequence[dict[str, Any]]) -> None:
        """Publish durably; while a part of the backend is away, again with the same ids, as every publisher does."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                outcomes = await self.backend.publisher.publish(raws)
                break
            except Transient:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        assert [outcome for outcome in outcomes if outcome.status not in ("stored", "duplicate")] == []
        self.acknowledged.update(raw["id"] for raw in raws)

    async def archived(self) -> list[Any]:
        """(id, type, run, source, verdict) of every position that counts."""
        log = event_log.c
        query = select(log.id, log.type, log.run, log.source, log.verdict)
        return await self.backend.db.read(lambda conn: list(conn.execute(query)))

    async def settled(self, runs: set[str]) -> None:
        """Wait until each of the runs has its settlement and every projection has folded all there is."""
        await self.until(lambda: self._is_settled(runs), f"{len(runs)} settlements, and projections without lag")

    async def _is_settled(self, runs: set[str]) -> bool:
        settled = {row.run for row in await self.archived() if row.type in TERMINAL}
        status = await self.backend.read_models.status()
        return runs <= settled and all(each.state == "live" and each.lag_events == 0 for each in status)

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not await holds():
            for role in self.roles.values():
                assert role.runs, f"{role.name} ended by itself\n{self.logs()}"
            assert time.monotonic() < deadline, f"in vain waited for {what}\n{self.logs()}"
            await asyncio.sleep(0.2)

    async def check(self, raws: Sequence[dict[str, Any]]) -> None:
        """Nothing lost, nothing doubled, each run settled once, and every read model what its log says."""
        published = {raw["id"] for raw in raws}
        runs = {raw["run"] for raw in raws if raw["type"] == "run.terminated"}
        assert self.acknowledged == published
        await self.settled(runs)
        rows = await self.archived()
        effective = Counter(row.id for row in rows if row.verdict == "effective" and row.id in published)
        assert set(effective) == published, "acknowledged events are lost"
        assert set(effective.values()) == {1}, "events took effect twice"
        assert not [row for row in rows if row.verdict == "conflict_with"]
        settlements = Counter(row.run for row in rows if row.verdict == "effective" and row.type in TERMINAL)
        assert settlements == dict.fromkeys(runs, 1)
        assert await self.dead_letters() == 0
        await self.verified()

    async def dead_letters(self) -> int:
        return sum(each.dead_letters for each in await self.backend.read_models.status())

    async def verified(self) -> None:
        """Every projection equals a refold of the log."""
        backend = self.backend
        for projection in backend.projections.values():
            found = await asyncio.to_thread(verify, projection, backend.stores, backend.db)
            assert found.equal, f"{found.name}: {found.first_differences}\n{self.logs()}"

    def logs(self, chars: int = 1500) -> str:
        """The end of each process's log."""
        return "\n".join(f"--- {role.name}\n{role.log.read_text()[-chars:]}" for role in self.roles.values())


@asynccontextmanager
async def running_cluster(
    folder: Path, *, database_url: str = "", roles: dict[str, str] | None = None, redis: AnyServer | None = None
) -> AsyncIterator[Cluster]:
    """A cluster with its files in ``folder``; ``redis``, if given, is stopped with it.

    At the end every role must stop cleanly on SIGTERM.
    """
    redis = redis or redis_server(folder / "redis")
    given = {"REDIS_URL": redis.url, "REFOLD_DATA": str(folder), "REFOLD_LEASE_S": str(LEASE_S)}
    if database_url:
        given["REFOLD_DATABASE_URL"] = database_url
    environ = {name: text for name, text in os.environ.items() if not name.startswith("REFOLD_")}
    environ |= {**NO_MODEL, **(WITH_MODEL if "indexer" in (roles or {}) else {}), **given}
    backend = await Backend.open(Settings.read(environ))
    cluster = Cluster(redis, {}, backend)
    try:
        for name, role in (roles or ROLES).items():
            cluster.roles[name] = Role(name, role, environ, folder / f"{name}.log")
            cluster.roles[name].start()
        yield cluster
        codes = {name: role.stop() for name, role in cluster.roles.items()}
        assert set(codes.values()) == {0}, f"{codes}\n{cluster.logs()}"
    finally:
        for role in cluster.roles.values():
            if role.process is not None and role.process.poll() is None:
                role.process.kill()
                role.process.wait()
        await backend.close()
        redis.stop()
