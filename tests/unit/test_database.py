"""How a store is reached, and what its failures mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, OperationalError

from events.database import Database, Stores
from events.database_engines import sqlite
from events.errors import SetupError, Transient

Work = Callable[[Connection], object]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    db = Stores(f"sqlite:///{tmp_path}").log()
    db.write_now(run("CREATE TABLE t (a INTEGER PRIMARY KEY)"))
    yield db
    db.close()


def run(statement: str) -> Work:
    def work(conn: Connection) -> None:
        conn.exec_driver_sql(statement)

    return work


def put(a: int) -> Work:
    return run(f"INSERT INTO t VALUES ({a})")


def pragma(name: str) -> Work:
    return lambda conn: conn.exec_driver_sql(f"PRAGMA {name}").scalar()


def rows(db: Database) -> list[int]:
    return db.read_now(lambda conn: list(conn.execute(text("SELECT a FROM t ORDER BY a")).scalars()))


def test_the_log_is_synced_and_a_generation_is_not(tmp_path: Path) -> None:
    stores = Stores(f"sqlite:///{tmp_path}")
    full, normal = 2, 1
    for db, synchronous in ((stores.log(), full), (stores.generation("g"), normal)):
        assert db.write_now(pragma("synchronous")) == synchronous
        assert db.write_now(pragma("journal_mode")) == "wal"
        db.close()


def test_sqlite_is_new_enough_not_to_lose_commits() -> None:
    assert sqlite.sqlite_version_info >= (3, 51, 3)


def test_an_older_sqlite_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "sqlite_version_info", (3, 40, 1))
    with pytest.raises(SetupError, match="pip install pysqlite3"):
        Stores(f"sqlite:///{tmp_path}").log()


def test_work_that_raises_is_rolled_back_and_the_connection_goes_on(db: Database) -> None:
    def fail(conn: Connection) -> None:
        conn.execute(text("INSERT INTO t VALUES (1)"))
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        db.write_now(fail)
    db.write_now(put(2))
    assert rows(db) == [2]


def test_a_violated_constraint_stays_what_it_is(db: Database) -> None:
    db.write_now(put(1))
    with pytest.raises(IntegrityError):
        db.write_now(put(1))
    assert rows(db) == [1]


def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises((SetupError, OperationalError), match="readonly"):
        db.read_now(put(1))
    assert rows(db) == []


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"nothing\.db"):
        Stores(f"sqlite:///{tmp_path}").generation("nothing").read_now(pragma("user_version"))
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://h/d", "not 'mysql'"),
        ("rubbish", "cannot be read"),
        ("sqlite://", "names no folder"),
        ("sqlite:////dev/null/x", "/dev/null/x"),
    ],
)
def test_a_wrong_url_says_what_to_write(url: str, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        Stores(url).log()


def test_a_dropped_generation_leaves_no_file(tmp_path: Path) -> None:
    stores = Stores(f"sqlite:///{tmp_path}")
    generation = stores.generation("g1")
    generation.write_now(run("CREATE TABLE t (a INTEGER)"))
    generation.close()
    stores.drop_generation("g1")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_needs_a_person(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(SetupError, match="not a database"):
        Stores(f"sqlite:///{tmp_path}").log().write_now(pragma("user_version"))


def test_a_held_lock_is_transient(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite.connect(db.url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    impatient = Database(db.url)
    monkeypatch.setattr("events.database_engines.LOCK_WAIT_S", 0.05)
    with pytest.raises(Transient, match="locked"):
        impatient.write_now(put(1))
    other.execute("COMMIT")
    impatient.write_now(put(1))
    assert rows(db) == [1]
    other.close()
