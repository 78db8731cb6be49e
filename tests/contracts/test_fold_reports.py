"""What owners say of their work, on the database's clock: one line a partition, of whoever holds it now."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from events.archive.schema import fold_reports
from events.clock import database_now_ms
from events.database import Database, Stores
from migrations import migrate
from projections.engine import ownership, reports
from projections.engine.reports import Holding, Report


@pytest.fixture
def db(stores: Stores) -> Iterator[Database]:
    db = stores.log()
    migrate(db)
    yield db
    db.close()


def hold(db: Database, partition: int, owner: str, ttl_s: float = 30.0) -> bool:
    return db.write_now(lambda conn: ownership.acquire(conn, "toy__g1", partition, owner, ttl_s))


def report(db: Database, owner: str, **by_partition: Report) -> None:
    told = {("toy__g1", int(name[1:])): each for name, each in by_partition.items()}
    db.write_now(lambda conn: reports.write(conn, owner, told))


def holdings(db: Database) -> dict[int, Holding]:
    return db.read_now(lambda conn: reports.holdings(conn, "toy__g1"))


def aged(db: Database, seconds: float) -> None:
    """As if that much time had passed since the last moves."""

    def work(conn: Connection) -> None:
        conn.execute(fold_reports.update().values(moved_ms=fold_reports.c.moved_ms - int(seconds * 1000)))

    db.write_now(work)


def test_the_clock_is_the_databases(db: Database) -> None:
    assert abs(db.read_now(database_now_ms) - time.time() * 1000) < 60_000


def test_an_owner_that_moves_and_one_that_stands_still(db: Database) -> None:
    assert hold(db, 0, "a") and hold(db, 1, "a")
    assert holdings(db) == {0: Holding("a", None, 0.0, ""), 1: Holding("a", None, 0.0, "")}
    report(db, "a", p0=Report(True, 40.0, ""), p1=Report(True, 2.0, ""))
    aged(db, 100)
    report(db, "a", p0=Report(True, 50.0, ""), p1=Report(False, 0.0, "the disk is away"))
    found = holdings(db)
    assert found[0].events_per_s == 50.0 and found[0].still_s is not None and found[0].still_s < 60
    assert (found[1].events_per_s, found[1].waits_for) == (0.0, "the disk is away")
    assert found[1].still_s is not None and found[1].still_s >= 100


def test_a_new_owner_is_not_blamed_for_the_former_ones_standstill(db: Database) -> None:
    hold(db, 0, "a", ttl_s=0.0)
    report(db, "a", p0=Report(False, 0.0, "ill"))
    aged(db, 100)
    time.sleep(0.01)
    assert holdings(db) == {}, "its lease has ended: nobody holds the partition"
    assert hold(db, 0, "b")
    assert holdings(db) == {0: Holding("b", None, 0.0, "")}
    report(db, "b", p0=Report(False, 0.0, ""))
    assert (holdings(db)[0].still_s or 0.0) < 60


def test_reports_that_nobody_stands_for_are_cleared(db: Database) -> None:
    hold(db, 0, "a")
    hold(db, 1, "a")
    report(db, "a", p0=Report(True, 1.0, ""), p1=Report(True, 1.0, ""))
    db.write_now(lambda conn: ownership.release(conn, "toy__g1", 0, "a"))
    db.write_now(reports.clear)
    left = db.read_now(lambda conn: [row.partition for row in conn.execute(fold_reports.select())])
    assert left == [1]
