"""What both kinds of store promise: whole transactions, snapshots, recovery of lost connections, bulk statements."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import BigInteger, Column, Connection, Double, MetaData, Table, Text, insert, select, update

from events.bulk import bulk_delete, bulk_insert, bulk_insert_new, bulk_select, bulk_upsert
from events.database import Database, Stores
from events.database_errors import CommitUnknown
from events.errors import Transient
from projections.projection import Json
from tests.servers import PostgresServer, own_postgres

metadata = MetaData()
things = Table(
    "things",
    metadata,
    Column("key", Text, primary_key=True),
    Column("n", BigInteger, primary_key=True),
    Column("value", Json),
    Column("weight", Double),
)
COLUMNS = ("key", "n", "value", "weight")


@pytest.fixture
def db(stores: Stores) -> Iterator[Database]:
    db = stores.generation("things__g1")
    db.write_now(metadata.create_all)
    yield db
    db.close()


def all_rows(conn: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in conn.execute(select(things).order_by(things.c.key, things.c.n))]


def test_bulk_statements_round_trip(db: Database) -> None:
    rows: list[tuple[Any, ...]] = [
        ("a", 1, {"z": [1, None], "b": "é\\u0000"}, 0.5),
        ("a", 2, None, None),
        ("b", 2**62, [], -1e300),
    ]
    db.write_now(lambda conn: bulk_insert(conn, things, COLUMNS, rows))
    assert db.read_now(all_rows) == rows
    newer = [("a", 2, {"new": True}, 2.0), ("c", 1, "text", 3.0)]
    db.write_now(lambda conn: bulk_upsert(conn, things, COLUMNS, newer))
    assert db.read_now(all_rows) == [rows[0], newer[0], rows[2], newer[1]]
    assert db.write_now(lambda conn: bulk_insert_new(conn, things, COLUMNS, [rows[0], ("d", 1, 1, 1.0)])) == 1
    db.write_now(lambda conn: bulk_delete(conn, things, ("key", "n"), [("a", 1), ("c", 1), ("x", 9)]))
    assert [row[:2] for row in db.read_now(all_rows)] == [("a", 2), ("b", 2**62), ("d", 1)]
    found = db.read_now(lambda c: sorted(bulk_select(c, things, ("key", "n"), ("key",), [("a",), ("d",), ("x",)])))
    assert found == [("a", 2), ("d", 1)]


def test_bulk_statements_take_more_rows_than_one_statement_holds(db: Database) -> None:
    rows: list[tuple[Any, ...]] = [(f"k{n:05}", n, n, None) for n in range(4500)]
    assert db.write_now(lambda conn: bulk_insert_new(conn, things, COLUMNS, rows)) == 4500
    db.write_now(lambda conn: bulk_upsert(conn, things, COLUMNS, [(k, n, v + 1, w) for k, n, v, w in rows]))
    assert db.read_now(all_rows) == [(k, n, v + 1, w) for k, n, v, w in rows]
    keys = [row[:2] for row in rows]
    assert len(db.read_now(lambda conn: list(bulk_select(conn, things, ("n",), ("key", "n"), keys)))) == 4500
    db.write_now(lambda conn: bulk_delete(conn, things, ("key", "n"), keys))
    assert db.read_now(all_rows) == []


def test_bulk_statements_of_nothing_do_nothing(db: Database) -> None:
    def work(conn: Connection) -> int:
        bulk_insert(conn, things, COLUMNS, [])
        bulk_upsert(conn, things, COLUMNS, [])
        bulk_delete(conn, things, ("key",), [])
        return bulk_insert_new(conn, things, COLUMNS, []) + len(list(bulk_select(conn, things, ("n",), ("key",), [])))

    assert db.write_now(work) == 0


def test_fifty_cancellations_in_mid_transaction_leave_whole_transactions(db: Database) -> None:
    async def cancel_midway(n: int) -> None:
        begun, cancelled = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def work(conn: Connection) -> None:
            conn.execute(insert(things), {"key": "first", "n": n})
            loop.call_soon_threadsafe(begun.set)
            cancelled.wait(10)
            conn.execute(insert(things), {"key": "second", "n": n})

        task = asyncio.ensure_future(db.write(work))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()

    async def main() -> None:
        for n in range(50):
            await cancel_midway(n)

    asyncio.run(main())
    whole = [(key, n) for key in ("first", "second") for n in range(50)]
    use_every_thread(db.write_now, db.writers)
    assert [row[:2] for row in db.read_now(all_rows)] == whole


def use_every_thread(call: Callable[[Callable[[Connection], Any]], Any], threads: int) -> None:
    """Have each of the threads run something at the same time; return when all are done."""
    barrier = threading.Barrier(threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: call(lambda conn: (conn.execute(select(1)), barrier.wait(30))), range(threads)))


def test_eight_writers_and_a_reader_lose_no_update(db: Database) -> None:
    """C24: eight tasks, 200 updates each, and a reader; no lost update, no "database is locked"."""
    db.write_now(lambda conn: bulk_insert(conn, things, COLUMNS, [(f"t{t}", 0, 0, 0.0) for t in range(8)]))
    seen: list[float] = []
    done = threading.Event()

    def count_up(task: int) -> None:
        mine = Database(db.url, schema=db.schema) if task % 2 else db
        for _ in range(200):
            mine.write_now(
                lambda conn: conn.execute(
                    update(things).where(things.c.key == f"t{task}").values(weight=things.c.weight + 1)
                )
            )
        if mine is not db:
            mine.close()

    def read_on() -> None:
        while not done.is_set():
            seen.append(sum(row.weight for row in db.read_now(lambda conn: conn.execute(select(things)).all())))

    with ThreadPoolExecutor(9) as pool:
        reader = pool.submit(read_on)
        list(pool.map(count_up, range(8)))
        done.set()
        reader.result()
    assert [row[3] for row in db.read_now(all_rows)] == [200.0] * 8
    assert seen == sorted(seen)


def test_a_read_is_one_snapshot(db: Database) -> None:
    def two_reads(conn: Connection) -> tuple[int, int]:
        before = len(all_rows(conn))
        db.write_now(lambda other: bulk_insert(other, things, COLUMNS, [("later", 1, None, None)]))
        return before, len(all_rows(conn))

    assert db.read_now(two_reads) == (0, 0)
    assert len(db.read_now(all_rows)) == 1


def test_a_store_is_dropped_with_all_that_is_in_it(stores: Stores) -> None:
    for _ in range(2):
        generation = stores.generation("things__g2")
        generation.write_now(metadata.create_all)
        generation.write_now(lambda conn: bulk_insert(conn, things, COLUMNS, [("a", 1, None, None)]))
        generation.close()
        stores.drop_generation("things__g2")
    stores.drop_generation("things__g2")


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A server of the test's own, to be killed."""
    with own_postgres() as server:
        yield server


def test_a_killed_postgresql_is_transient_and_has_all_commits(mortal: PostgresServer) -> None:
    db = Stores(mortal.url).generation("things__g1")
    db.write_now(metadata.create_all)
    use_every_thread(db.write_now, db.writers)
    use_every_thread(db.read_now, db.readers)
    mortal.kill()
    with pytest.raises(Transient, match="PostgreSQL"):
        db.write_now(all_rows)
    with pytest.raises(Transient, match="PostgreSQL"):
        db.read_now(all_rows)
    mortal.start()
    # one thread has met the failure; the others replace their connections without meeting it
    use_every_thread(db.write_now, db.writers)
    use_every_thread(db.read_now, db.readers)
    assert db.read_now(all_rows) == []
    db.close()


def test_a_commit_of_unknown_outcome_says_so(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    db = Stores(url).generation("things__g1")
    db.write_now(metadata.create_all)

    def lose_the_connection_before_the_commit(conn: Connection) -> None:
        bulk_insert(conn, things, COLUMNS, [("b", 1, None, None)])
        pid = conn.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with psycopg.connect(url, autocommit=True) as other:
            # waits until the backend is gone
            other.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))

    with pytest.raises(CommitUnknown, match="whether it holds is unknown"):
        db.write_now(lose_the_connection_before_the_commit)
    assert db.read_now(all_rows) == []
    db.close()


def test_a_stalled_transaction_is_ended_and_reported(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.database_engines.STALLED_TRANSACTION_S", 0.2)
    db = Stores(postgres.new_database()).generation("things__g1")
    db.write_now(metadata.create_all)
    stalled = threading.Event()

    def stall(conn: Connection) -> None:
        conn.execute(insert(things), {"key": "a", "n": 1})
        stalled.wait(1)
        conn.execute(insert(things), {"key": "a", "n": 2})

    with pytest.raises(Transient):
        db.write_now(stall)
    assert db.read_now(all_rows) == []
    db.close()
