"""Processes that start together on an empty store: one creates the log, all find it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import func, select

from events.archive import store
from events.archive.schema import reactor_checkpoints
from events.database import Database, Stores
from events.errors import Transient
from services.composition import _prepare
from services.reactors.registry import REACTORS
from services.settings import NEW_LOG_PARTITIONS

STARTERS = 6


def prepared(database: Database) -> int:
    """As a worker starts: while a new SQLite file turns to WAL it is locked for all others, who try again."""
    for _ in range(200):
        try:
            return _prepare(database, 0)
        except Transient:
            time.sleep(0.05)
    raise AssertionError("the store stayed locked")


@pytest.mark.parametrize("attempt", range(3))
def test_the_log_is_created_once(stores: Stores, attempt: int) -> None:
    databases = [stores.log() for _ in range(STARTERS)]
    together = Barrier(STARTERS)

    def start(index: int) -> tuple[int, str]:
        together.wait()
        return prepared(databases[index]), databases[index].read_now(store.log_id)

    try:
        with ThreadPoolExecutor(STARTERS) as threads:
            found = list(threads.map(start, range(STARTERS)))
        assert len(set(found)) == 1
        assert found[0][0] == NEW_LOG_PARTITIONS
        checkpoints = databases[0].read_now(
            lambda conn: conn.execute(select(func.count()).select_from(reactor_checkpoints)).scalar_one()
        )
        assert checkpoints == len(tuple(REACTORS)) * NEW_LOG_PARTITIONS
    finally:
        for database in databases:
            database.close()
