"""Fixtures that all tests share: real stores of both kinds."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from events.archive.schema import metadata
from events.database import Database, Stores
from events.registry import EVENT_TYPES
from tests.contracts.engine_lab import Lab
from tests.redis_cluster import AnyServer, RedisCluster, redis_cluster
from tests.servers import PostgresServer, own_postgres, redis_server

# torch takes seconds of every process that embeds: tests that are about it ask for it
os.environ.setdefault("REFOLD_EMBEDDING_FORM", "light")


def pytest_collection_finish() -> None:
    """What was imported is there till the end: no collection of garbage in a test looks through it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server a session; ask it for a ``new_database`` a test."""
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[RedisCluster]:
    """One Redis Cluster of three masters a session; ``cluster`` is it, empty."""
    with tempfile.TemporaryDirectory(prefix="refold-cluster-") as folder:
        cluster = redis_cluster(Path(folder))
        yield cluster
        cluster.stop()


@pytest.fixture
def cluster(session_cluster: RedisCluster) -> RedisCluster:
    """A Redis Cluster of three masters, empty."""
    session_cluster.flush()
    return session_cluster


@pytest.fixture(autouse=True)
def _event_types_stay() -> Iterator[None]:
    """A test that registers types of its own takes them back: other tests of the process see the same registry."""
    before = dict(EVENT_TYPES)
    yield
    assert before == EVENT_TYPES, "this test left event types behind; see `knowing` in tests/upgrades/goals_v2.py"


@dataclass(frozen=True)
class Deployment:
    """A Redis and empty stores, as they go together."""

    redis: AnyServer
    stores: Stores


@pytest.fixture(params=["redis-sqlite", "redis-postgresql", "cluster-postgresql"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Each way to run the backend in turn: embedded, with PostgreSQL, and with a Redis Cluster as well."""
    redis, sql = request.param.split("-")
    if sql == "sqlite":
        stores = Stores(f"sqlite:///{tmp_path}/stores")
    else:
        stores = Stores(request.getfixturevalue("postgres").new_database())
    if redis == "cluster":
        yield Deployment(request.getfixturevalue("cluster"), stores)
    else:
        server = redis_server(tmp_path / "redis")
        yield Deployment(server, stores)
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Empty stores of each kind in turn."""
    if request.param == "sqlite":
        return Stores(f"sqlite:///{tmp_path}/stores")
    server: PostgresServer = request.getfixturevalue("postgres")
    return Stores(server.new_database())


@pytest.fixture
def log_db(stores: Stores) -> Iterator[Database]:
    """An empty log store of each kind in turn, with its tables."""
    db = stores.log()
    db.write_now(metadata.create_all)
    yield db
    db.close()


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    """Stores of each kind in turn, with an empty log to fold."""
    lab = Lab(stores)
    yield lab
    lab.log.close()
