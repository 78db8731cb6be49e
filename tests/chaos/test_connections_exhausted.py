"""Others take every connection of PostgreSQL, hold its locks, and end our sessions: all that passes is waited for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.chaos.cluster import running_cluster
from tests.chaos.killing import publish
from tests.chaos.workload import made_up_runs
from tests.servers import PostgresServer, own_postgres

HELD_S = 2.0
RUNS = 18


@pytest.fixture
def busy() -> Iterator[PostgresServer]:
    """A PostgreSQL of its own, to be used up."""
    with own_postgres(max_connections="140") as server:
        yield server


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_connections_exhausted(tmp_path: Path, busy: PostgresServer) -> None:
    """Invariants 1 and 2: with no connection left, none granted in time, and those that there are taken away."""
    url = busy.new_database()
    runs = made_up_runs(RUNS, random.Random(9))

    with psycopg.connect(busy.url, autocommit=True) as admin:
        name = url.rpartition("/")[2]
        admin.execute(f"ALTER DATABASE {name} SET statement_timeout = '1s'")  # type: ignore[arg-type]

    async def scenario() -> None:
        async with running_cluster(tmp_path, database_url=url) as cluster:
            await publish(cluster, runs[::4])
            troubles = (
                lambda: _exhaust(busy.url, cluster.roles["projector-a"].kill),
                lambda: _lock(url),
                lambda: _end_sessions(url),
            )
            for number, trouble in enumerate(troubles, 1):
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.to_thread(trouble))
                    group.create_task(publish(cluster, runs[number::4]))
            await cluster.check([event for run in runs for event in run])

    asyncio.run(scenario())


def _exhaust(url: str, kill: Callable[[], None]) -> None:
    with all_connections(url):
        kill()  # whoever starts now finds none
        time.sleep(HELD_S)


def _lock(url: str) -> None:
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE refold_log.log_watermarks, refold_log.leases IN ACCESS EXCLUSIVE MODE")
        time.sleep(HELD_S)


def _end_sessions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        for _ in range(5):
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'refold'")
            time.sleep(HELD_S / 5)


@contextmanager
def all_connections(url: str) -> Iterator[None]:
    """Hold every connection that the server still has."""
    with ExitStack() as stack:
        stack.enter_context(psycopg.connect(url))
        with pytest.raises(psycopg.OperationalError, match="too many clients"):  # noqa: PT012  at some point
            while True:
                stack.enter_context(psycopg.connect(url))
        yield
