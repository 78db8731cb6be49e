"""Many rows in one statement: the hot paths, without an ORM and without ``insert().values(list)`` (FACTS: 19 k rows/s).

Rows are tuples in the order of ``columns``, holding what the driver takes; values of a TypeDecorator column (Json) are
bound as Core would bind them. SQLite runs ``executemany``, PostgreSQL COPY or one statement over ``unnest`` arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

Row = Sequence[Any]

_CHUNK = 2000
"""Rows a PostgreSQL statement: bounds the memory of its arrays."""


def bulk_insert(conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert new rows. An existing primary key raises IntegrityError (psycopg.errors.UniqueViolation from COPY)."""
    if not rows:
        return
    names = _names(table, columns)
    rows = _bound(conn.dialect, table, columns, rows)
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql(f'INSERT INTO "{table.name}" ({names}) VALUES ({_marks(columns)})', _tuples(rows))
        return
    with _driver_cursor(conn) as cursor, cursor.copy(f'COPY "{table.name}" ({names}) FROM STDIN') as copy:
        for row in rows:
            copy.write_row(row)


def bulk_insert_new(conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> int:
    """Insert the rows whose primary key is not there yet; the number of rows inserted. Keys in ``rows`` are unique."""
    return _insert_on_conflict(conn, table, columns, rows, "ON CONFLICT DO NOTHING")


def bulk_upsert(conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert rows, or replace ``columns`` of those that exist.

    Primary keys in ``rows`` are unique, and in sorted order where several writers meet, or they deadlock.
    """
    _insert_on_conflict(conn, table, columns, rows, _do_update(table, tuple(columns)))


def bulk_delete(conn: Connection, table: Table, columns: Sequence[str], keys: Sequence[Row]) -> None:
    """Delete the rows whose ``columns`` equal one of ``keys``."""
    if not keys:
        return
    keys = _bound(conn.dialect, table, columns, keys)
    if conn.dialect.name == "sqlite":
        where = " AND ".join(f'"{name}" = ?' for name in columns)
        conn.exec_driver_sql(f'DELETE FROM "{table.name}" WHERE {where}', _tuples(keys))
        return
    for arrays in _arrays(keys):
        source = f"unnest({_casts(table, columns)}) AS k({_names(table, columns)})"
        match = " AND ".join(f'"{table.name}"."{name}" = k."{name}"' for name in columns)
        conn.exec_driver_sql(f'DELETE FROM "{table.name}" USING {source} WHERE {match}', arrays)


def bulk_select(
    conn: Connection, table: Table, columns: Sequence[str], key_columns: Sequence[str], keys: Sequence[Row]
) -> Iterator[tuple[Any, ...]]:
    """``columns`` of the rows whose ``key_columns`` equal one of ``keys``, as the driver gives them, in any order."""
    keys = _bound(conn.dialect, table, key_columns, keys)
    wanted = ", ".join(f't."{name}"' for name in columns)
    match = " AND ".join(f't."{name}" = k."{name}"' for name in key_columns)
    if conn.dialect.name == "sqlite":
        yield from _sqlite_select(conn, table, wanted, key_columns, keys)
        return
    for arrays in _arrays(keys):
        source = f"unnest({_casts(table, key_columns)}) AS k({_names(table, key_columns)})"
        found = conn.exec_driver_sql(f'SELECT {wanted} FROM {source} JOIN "{table.name}" t ON {match}', arrays)
        yield from (tuple(row) for row in found)


def _sqlite_select(
    conn: Connection, table: Table, wanted: str, key_columns: Sequence[str], keys: Sequence[Row]
) -> Iterator[tuple[Any, ...]]:
    # no network between us and the store: a prepared statement a key is faster than one large statement
    where = " AND ".join(f't."{name}" = ?' for name in key_columns)
    statement = f'SELECT {wanted} FROM "{table.name}" t WHERE {where}'
    cursor = _driver_cursor(conn)
    for key in keys:
        yield from cursor.execute(statement, key).fetchall()
    cursor.close()


def _insert_on_conflict(
    conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Row], on_conflict: str
) -> int:
    if not rows:
        return 0
    rows = _bound(conn.dialect, table, columns, rows)
    into = f'INSERT INTO "{table.name}" ({_names(table, columns)})'
    if conn.dialect.name == "sqlite":
        statement = f"{into} VALUES ({_marks(columns)}) {on_conflict}"
        return int(conn.exec_driver_sql(statement, _tuples(rows)).rowcount)
    statement = f"{into} SELECT * FROM unnest({_casts(table, columns)}) {on_conflict}"
    return sum(conn.exec_driver_sql(statement, arrays).rowcount for arrays in _arrays(rows))


def _do_update(table: Table, columns: tuple[str, ...]) -> str:
    keys = [column.name for column in table.primary_key.columns]
    target = ", ".join(f'"{name}"' for name in keys)
    assignments = ", ".join(f'"{name}" = excluded."{name}"' for name in columns if name not in keys)
    return f"ON CONFLICT ({target}) DO UPDATE SET {assignments}" if assignments else "ON CONFLICT DO NOTHING"


def _names(table: Table, columns: Sequence[str]) -> str:
    return ", ".join(f'"{table.c[name].name}"' for name in columns)


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" for _ in columns)


def _casts(table: Table, columns: Sequence[str]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return ", ".join(f"%s::{table.c[name].type.compile(dialect)}[]" for name in columns)


def _arrays(rows: Sequence[Row]) -> Iterator[tuple[list[Any], ...]]:
    for start in range(0, len(rows), _CHUNK):
        yield tuple(map(list, zip(*rows[start : start + _CHUNK], strict=True)))


def _tuples(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [row if type(row) is tuple else tuple(row) for row in rows]


def _driver_cursor(conn: Connection) -> Any:
    driver: Any = conn.connection.driver_connection
    return driver.cursor()


def _bound(dialect: Dialect, table: Table, columns: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
    processors = [
        (index, processor)
        for index, name in enumerate(columns)
        if isinstance(table.c[name].type, TypeDecorator)
        and (processor := table.c[name].type.dialect_impl(dialect).bind_processor(dialect)) is not None
    ]
    if not processors:
        return rows
    bound = [list(row) for row in rows]
    for index, processor in processors:
        for row in bound:
            row[index] = processor(row[index])
    return bound
