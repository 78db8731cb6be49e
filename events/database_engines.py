"""How connections to the two kinds of store are made: the settings that the rest of the backend relies on.

SQLite comes from the ``pysqlite3`` wheel: before 3.51.3 the library has a fault that loses commits in WAL mode.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import psycopg
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from events.errors import SetupError

LOCK_WAIT_S = 30
"""How long a statement waits for another's lock before it fails as Transient."""

STALLED_TRANSACTION_S = 15
"""PostgreSQL ends a transaction that has been idle this long: a stalled owner must not block who takes over."""

_SERVER_GONE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}
"""A machine that vanishes says nothing: within half a minute its connections count as lost (libpq; seconds, and ms)."""

_OLDEST_SQLITE = (3, 51, 3)


def _load_sqlite() -> Any:
    try:
        from pysqlite3 import dbapi2
    except ImportError:
        import sqlite3 as dbapi2
    return dbapi2


sqlite: Any = _load_sqlite()
"""The DB-API module in use: ``pysqlite3``, or the standard library's where that wheel does not exist."""


def dialect_of(url: str) -> Literal["sqlite", "postgresql"]:
    """Kind of the store at ``url``. Raises SetupError for any other."""
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError as error:
        raise SetupError(f"the store's URL {url!r} cannot be read: write sqlite:///DIR or postgresql://...") from error
    if backend == "sqlite":
        return "sqlite"
    if backend == "postgresql":
        return "postgresql"
    raise SetupError(f"the store is SQLite or PostgreSQL, not {backend!r}: write sqlite:///DIR or postgresql://...")


def writer(url: str, schema: str | None, *, durable: bool) -> Engine:
    """Engine whose transactions may write. A missing file or schema is made when the first connection opens."""
    if dialect_of(url) == "sqlite":
        return _sqlite_engine(url, "IMMEDIATE", mode="rwc", synchronous="FULL" if durable else "NORMAL")
    engine = _postgres_engine(url, schema)
    _wait_for_the_disk(engine)
    if schema:
        _make_schema_at_connect(engine, schema)
    return engine


def reader(url: str, schema: str | None) -> Engine:
    """Engine whose transactions are one snapshot each and cannot write. A missing file is an error."""
    if dialect_of(url) == "sqlite":
        return _sqlite_engine(url, "DEFERRED", mode="rw", synchronous="NORMAL")
    engine = _postgres_engine(url, schema)
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _sqlite_engine(url: str, begin: str, *, mode: str, synchronous: str) -> Engine:
    if sqlite.sqlite_version_info < _OLDEST_SQLITE:
        wanted = ".".join(map(str, _OLDEST_SQLITE))
        raise SetupError(
            f"SQLite {sqlite.sqlite_version} can lose commits: `pip install pysqlite3`, or use a Python "
            f"whose SQLite is at least {wanted}, or PostgreSQL"
        )
    path = Path(make_url(url).database or "").absolute()

    def connect() -> Any:
        try:
            # isolation_level=None: the driver begins nothing by itself, SQLAlchemy's begin event below does
            connection = sqlite.connect(
                f"file:{quote(str(path))}?mode={mode}",
                uri=True,
                timeout=LOCK_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite.OperationalError as error:
            raise SetupError(f"the SQLite file {path} cannot be opened: {error}") from error
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        cursor.execute("PRAGMA journal_size_limit=67108864")
        cursor.execute("PRAGMA cache_size=-32768")
        cursor.execute("PRAGMA temp_store=MEMORY")
        if begin == "DEFERRED":
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()
        return connection

    engine = create_engine("sqlite:///", module=sqlite, creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {begin}")

    return engine


def _postgres_engine(url: str, schema: str | None) -> Engine:
    options = [
        f"idle_in_transaction_session_timeout={int(STALLED_TRANSACTION_S * 1000)}",
        f"lock_timeout={LOCK_WAIT_S * 1000}",
        "timezone=UTC",
    ]
    if schema:
        options.append(f'search_path="{schema}"')
    return create_engine(
        make_url(url).set(drivername="postgresql+psycopg"),
        poolclass=NullPool,
        connect_args={
            "options": " ".join(f"-c {option}" for option in options),
            "connect_timeout": 10,
            **_SERVER_GONE,
            "application_name": "refold",
        },
    )


def _wait_for_the_disk(engine: Engine) -> None:
    """Never commit asynchronously, though the server's default says so; a stronger setting stays.

    Else a killed server forgets commits: what was acknowledged, or a generation's CREATE TABLE. (SQLite's NORMAL
    forgets only when the machine itself stops.)
    """

    @event.listens_for(engine, "connect")
    def _wait(connection: Any, _record: Any) -> None:
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()


def _make_schema_at_connect(engine: Engine, schema: str) -> None:
    @event.listens_for(engine, "connect")
    def _make(connection: Any, _record: Any) -> None:
        # two processes that make it in the same moment: one of them gets a unique violation, and all is well
        with suppress(psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema):
            with connection.cursor() as cursor:
                cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            connection.commit()
        connection.rollback()
