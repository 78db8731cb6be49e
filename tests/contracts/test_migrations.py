"""Migrations of the log store: both ways, on both stores, equal to the tables that the code uses."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import pytest
from alembic.operations import Operations
from sqlalchemy import Connection, inspect, text

from events.archive.schema import metadata
from events.database import Database, Stores
from events.errors import SetupError
from migrations import current, downgrade, migrate

HEAD = "0005"


@pytest.fixture
def db(stores: Stores) -> Iterator[Database]:
    db = stores.log()
    yield db
    db.close()


def shape(conn: Connection) -> dict[str, Any]:
    """Everything that a store says about its tables, but for alembic's own."""
    inspector = inspect(conn)
    tables = [name for name in sorted(inspector.get_table_names()) if name != "alembic_version"]
    said = {
        name: (
            [{**column, "type": str(column["type"])} for column in inspector.get_columns(name)],
            inspector.get_pk_constraint(name),
        )
        for name in tables
    }
    source = (
        "SELECT name, sql FROM sqlite_master"
        if conn.dialect.name == "sqlite"
        else "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
    )
    definitions = {
        name: " ".join(sql.split()) for name, sql in conn.execute(text(source)) if sql and "alembic" not in name
    }
    return {"tables": said, "definitions": definitions}


def names(db: Database) -> set[str]:
    return set(db.write_now(lambda conn: inspect(conn).get_table_names()))


def test_replayed_migrations_equal_the_tables_in_use(stores: Stores, db: Database) -> None:
    migrate(db)
    migrated = db.read_now(shape)
    other = stores.generation("by_create_all")
    other.write_now(metadata.create_all)
    created = other.read_now(shape)
    other.close()
    if db.dialect == "postgresql":
        created["definitions"] = {
            name: sql.replace("by_create_all.", f"{db.schema}.") for name, sql in created["definitions"].items()
        }
    assert set(migrated["tables"]) == set(metadata.tables)
    assert migrated == created


def test_migrations_go_both_ways(db: Database) -> None:
    migrate(db)
    up = db.read_now(shape)
    assert current(db) == HEAD
    downgrade(db, "base")
    assert names(db) == {"alembic_version"}
    assert current(db) is None
    migrate(db)
    assert db.read_now(shape) == up
    migrate(db)
    assert db.read_now(shape) == up


def _migrate_and_die(url: str) -> None:
    create_table = Operations.create_table

    def die_at_leases(self: Operations, name: str, *args: Any, **options: Any) -> Any:
        if name == "leases":
            os._exit(9)
        return create_table(self, name, *args, **options)

    Operations.create_table = die_at_leases  # type: ignore[method-assign, assignment]
    _migrate(url)


def test_a_killed_migration_leaves_nothing_and_can_be_run_again(stores: Stores, db: Database) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_migrate_and_die, args=(stores.url,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert names(db) == set()
    migrate(db)
    assert names(db) == {*metadata.tables, "alembic_version"}


def from_the_future(conn: Connection) -> None:
    conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))


def test_older_code_works_on_a_store_beside_newer_code(db: Database) -> None:
    """During a rolling deploy, and after one was taken back; the migration that it does not know stays."""
    migrate(db)
    db.write_now(from_the_future)
    before = db.read_now(shape)
    migrate(db)
    assert current(db) == "9999"
    assert db.read_now(shape) == before
    with pytest.raises(SetupError, match="newer Refold"):
        downgrade(db, "0001")


def test_a_store_that_needs_newer_code_is_left_alone(db: Database) -> None:
    migrate(db)
    db.write_now(from_the_future)
    needs = text("INSERT INTO log_config (name, value) VALUES ('needs_revision', '9999')")
    db.write_now(lambda conn: conn.execute(needs))
    with pytest.raises(SetupError, match="newer Refold"):
        migrate(db)


def _migrate(url: str) -> None:
    db = Stores(url).log()
    migrate(db)
    db.close()


def test_several_processes_may_migrate_at_once(stores: Stores, db: Database) -> None:
    processes = [multiprocessing.get_context("spawn").Process(target=_migrate, args=(stores.url,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert names(db) == {*metadata.tables, "alembic_version"}
