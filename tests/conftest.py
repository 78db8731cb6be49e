"""Fixtures that all tests share: real stores of both kinds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from events.archive.schema import metadata
from events.database import Database, Stores
from tests.servers import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server a session; ask it for a ``new_database`` a test."""
    # not under pytest's own folder, which the server's user could not enter
    with tempfile.TemporaryDirectory(prefix="refold-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = postgres_server(Path(folder) / "data")
        yield server
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
