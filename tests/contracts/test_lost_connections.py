"""Connections to PostgreSQL that go away while nobody uses them, and servers that have no more to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import Connection, text

from events.database import Database, Stores
from events.errors import Transient
from tests.servers import PostgresServer


@pytest.fixture
def db(postgres: PostgresServer) -> Iterator[Database]:
    db = Stores(postgres.new_database()).log()
    db.write_now(lambda conn: conn.execute(text("CREATE TABLE t (a INTEGER PRIMARY KEY)")))
    yield db
    db.close()


def put(a: int, before: Callable[[], None] = lambda: None) -> Callable[[Connection], object]:
    def work(conn: Connection) -> None:
        before()
        conn.execute(text(f"INSERT INTO t VALUES ({a})"))

    return work


def rows(db: Database) -> list[int]:
    return db.read_now(lambda conn: list(conn.execute(text("SELECT a FROM t ORDER BY a")).scalars()))


def end_sessions(db: Database) -> None:
    with psycopg.connect(db.url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'refold' AND datname = current_database()"
        )


def test_what_was_lost_while_it_lay_idle_is_replaced_unseen(db: Database) -> None:
    assert rows(db) == []
    end_sessions(db)
    db.write_now(put(1))
    end_sessions(db)
    assert rows(db) == [1]


def test_what_is_lost_again_and_again_is_told(db: Database) -> None:
    tries = []

    def lose() -> None:
        tries.append(1)
        end_sessions(db)

    with pytest.raises(Transient):
        db.write_now(put(1, before=lose))
    assert 1 <= len(tries) <= 2
    assert rows(db) == []


def test_a_server_that_gives_no_connection_takes_none_away(db: Database, postgres: PostgresServer) -> None:
    db.write_now(put(1))
    name = db.url.rpartition("/")[2]
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')  # type: ignore[arg-type]
        with pytest.raises(Transient, match="not currently accepting connections"):
            rows(db)
        db.write_now(put(2))
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')  # type: ignore[arg-type]
    assert rows(db) == [1, 2]
