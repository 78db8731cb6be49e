"""The wall clock, of this process and of the database, for what is only told and orders nothing."""

from __future__ import annotations

import time

from sqlalchemy import Connection


def now_ms() -> int:
    """This moment in Unix milliseconds."""
    return time.time_ns() // 1_000_000


DATABASE_NOW_MS = {
    "sqlite": "CAST(unixepoch('subsec') * 1000 AS BIGINT)",
    # not now(): that is frozen in a transaction
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
"""By dialect, the SQL of this moment in Unix milliseconds on the database's clock: the one that all processes share."""


def database_now_ms(conn: Connection) -> int:
    """This moment in Unix milliseconds on the clock of the database."""
    return int(conn.exec_driver_sql(f"SELECT {DATABASE_NOW_MS[conn.dialect.name]}").scalar_one())
