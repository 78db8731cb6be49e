"""One store of the backend: a SQLite file or a PostgreSQL schema, used through the same synchronous Core code.

Every connection is long-lived and belongs to one thread: work goes to the thread, never the connection to the work.
``Database.write`` runs a function in one transaction, ``Database.read`` in one snapshot. Whoever awaits may be
cancelled: a transaction that has begun completes all the same, only its result is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Engine, make_url, text
from sqlalchemy.schema import DropSchema

from events import database_engines as engines
from events.database_errors import DATABASE_ERRORS, CommitUnknown, surfaced
from events.errors import SetupError

T = TypeVar("T")
Work = Callable[[Connection], T]
"""What runs on a connection. It neither commits nor rolls back, and may run again in another transaction."""

LOG_NAME = "log"
"""The store that alembic owns: archive, ids, epochs, registry, leases, refused events."""


READERS = 3
"""Snapshots that one store reads side by side."""
JOURNAL_WAIT_MS = 2_000
"""How long others are waited for before a write-ahead log is left as it is."""
POSTGRES_WRITERS = 4
"""Transactions that one PostgreSQL store commits side by side; SQLite takes one writer."""


class Database:
    """One SQLite file or PostgreSQL schema, with its threads and connections.

    ``durable`` stores are synced to disk before a commit returns. A SQLite file that is not can lose its last commits,
    never its consistency, when the machine loses power: right for generations, which are derived from the log.
    Connections open at first use. Errors that pass (a lock, a lost connection, a full disk) are raised as Transient,
    what needs a person as SetupError; mistakes in ``work`` (a wrong statement, a violated constraint) stay as they are.
    """

    def __init__(self, url: str, *, schema: str | None = None, durable: bool = True, readers: int = READERS) -> None:
        self.url = url
        self.schema = schema
        self.dialect: Literal["sqlite", "postgresql"] = engines.dialect_of(url)
        self.readers = readers
        self.writers = 1 if self.dialect == "sqlite" else POSTGRES_WRITERS
        label = schema or make_url(url).database or "db"
        self._writer = _Lane(engines.writer(url, schema, durable=durable), self.writers, f"{label}-write")
        self._reader = _Lane(engines.reader(url, schema), readers, f"{label}-read")

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in one transaction: commit when it returns, roll back when it raises.

        Raises CommitUnknown when the store failed during the commit, so that nobody knows whether it holds.
        """
        return await asyncio.wrap_future(self._writer.submit(_in_transaction, work))

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` on one snapshot of the store; it cannot write."""
        return await asyncio.wrap_future(self._reader.submit(_in_snapshot, work))

    def write_now(self, work: Work[T]) -> T:
        """``write`` for callers without an event loop; blocks."""
        return self._writer.submit(_in_transaction, work).result()

    def read_now(self, work: Work[T]) -> T:
        """``read`` for callers without an event loop; blocks."""
        return self._reader.submit(_in_snapshot, work).result()

    def empty_journal(self) -> bool:
        """Take what a SQLite file's write-ahead log holds into the file: old versions of pages are gone then. Blocks.

        False while others are at it. There is nothing to do on PostgreSQL.
        """
        return self.dialect != "sqlite" or self._writer.submit(_journal_emptied, _nothing).result()

    def close(self) -> None:
        """Finish what has begun, drop what has not, close the connections. A closed database is not used again."""
        self._writer.close()
        self._reader.close()


class Stores:
    """Where each store of a backend is: ``sqlite:///DIR`` (a file each) or ``postgresql://...`` (a schema each).

    Each call opens a store of its own; the caller closes it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.dialect = engines.dialect_of(url)
        if self.dialect == "sqlite":
            self.directory = Path(make_url(url).database or "")
            if not str(make_url(url).database or ""):
                raise SetupError(f"the store {url!r} names no folder: write sqlite:///path/to/folder")

    def log(self) -> Database:
        """The archive and all else that cannot be derived; durable."""
        return self._open(LOG_NAME, durable=True)

    def generation(self, name: str) -> Database:
        """The store of one generation of a read model, ``task_state__g3`` say; made at the first write."""
        return self._open(name, durable=False)

    def drop_generation(self, name: str) -> None:
        """Delete a generation's store with all that is in it; nothing happens when it is not there."""
        if self.dialect == "sqlite":
            for suffix in ("", "-wal", "-shm"):
                (self.directory / f"{name}.db{suffix}").unlink(missing_ok=True)
            return
        log = self.log()
        try:
            log.write_now(lambda conn: conn.execute(DropSchema(name, cascade=True, if_exists=True)))
        finally:
            log.close()

    def find_generations(self, mark: str) -> list[str]:
        """Names of the stores that there are whose name holds ``mark``, in order."""
        if self.dialect == "sqlite":
            return sorted(path.stem for path in self.directory.glob("*.db") if mark in path.stem)
        log = self.log()
        try:
            query = text("SELECT nspname FROM pg_namespace WHERE position(:mark IN nspname) > 0 ORDER BY nspname")
            return list(log.read_now(lambda conn: conn.execute(query, {"mark": mark}).scalars().all()))
        finally:
            log.close()

    def _open(self, name: str, *, durable: bool) -> Database:
        if self.dialect == "postgresql":
            return Database(self.url, schema=f"refold_{name}" if name == LOG_NAME else name, durable=durable)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(f"the folder {self.directory} cannot be made: {error.strerror}") from error
        return Database(f"sqlite:///{self.directory / name}.db", durable=durable)


@contextmanager
def overwriting(conn: Connection) -> Iterator[None]:
    """What is deleted or replaced in this transaction meanwhile leaves no bytes in a SQLite file (free pages, slack).

    PostgreSQL keeps old versions of rows until it vacuums the table, which it does by itself.
    """
    if conn.dialect.name != "sqlite":
        yield
        return
    conn.exec_driver_sql("PRAGMA secure_delete=ON")
    try:
        yield
    finally:
        conn.exec_driver_sql("PRAGMA secure_delete=OFF")


class _Lane:
    """A fixed set of threads, each with one long-lived connection that it replaces when it was lost."""

    def __init__(self, engine: Engine, threads: int, name: str) -> None:
        self._engine = engine
        self._local = threading.local()
        self._connections: set[Connection] = set()
        self._era = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, run: Callable[[Connection, Work[T]], T], work: Work[T]) -> Future[T]:
        return self._executor.submit(self._run, run, work)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        for connection in self._connections:
            with suppress(*DATABASE_ERRORS):
                connection.close()
        self._connections.clear()
        self._engine.dispose()

    def _run(self, run: Callable[[Connection, Work[T]], T], work: Work[T]) -> T:
        reused = self._is_open()
        connection = self._connection()
        try:
            return run(connection, work)
        except CommitUnknown:
            self._replace_all()
            raise
        except DATABASE_ERRORS as error:
            # a connection that saw an error is not used again: rare, and no state is left to reason about
            lost = _is_lost(connection)
            self._discard()
            meaning = surfaced(error)
            if meaning is None:
                raise
            self._replace_all()
            if not (reused and lost):
                raise meaning from error
        # it may have been lost long ago, by a restart of the server, and only now shows it
        return self._run(run, work)

    def _is_open(self) -> bool:
        return getattr(self._local, "connection", None) is not None and self._local.era == self._era

    def _connection(self) -> Connection:
        if self._is_open():
            connection: Connection = self._local.connection
            return connection
        self._discard()
        era = self._era
        try:
            connection = self._engine.connect()
        except DATABASE_ERRORS as error:
            # the other threads keep theirs: a server that has no connection left would not give them new ones either
            raise surfaced(error) or error from error
        self._local.connection, self._local.era = connection, era
        self._connections.add(connection)
        return connection

    def _replace_all(self) -> None:
        """Let every thread open a new connection: a server that was restarted has lost them all."""
        self._era += 1

    def _discard(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            self._connections.discard(connection)
            with suppress(*DATABASE_ERRORS):
                connection.invalidate()
                connection.close()


def _nothing(connection: Connection) -> bool:
    return False


def _journal_emptied(connection: Connection, _work: Work[bool]) -> bool:
    driver: Any = connection.connection.driver_connection  # a checkpoint is no part of a transaction
    driver.execute(f"PRAGMA busy_timeout={JOURNAL_WAIT_MS}")
    try:
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        driver.execute(f"PRAGMA busy_timeout={engines.LOCK_WAIT_S * 1000}")
    return not busy


def _is_lost(connection: Connection) -> bool:
    """Whether the server has gone from a connection, or closed it."""
    return connection.invalidated or bool(getattr(connection.connection.driver_connection, "closed", False))


def _in_transaction(connection: Connection, work: Work[T]) -> T:
    with connection.begin() as transaction:
        result = work(connection)
        try:
            transaction.commit()
        except DATABASE_ERRORS as error:
            meaning = surfaced(error)
            if meaning is None:
                raise
            raise CommitUnknown(f"{meaning} (during the commit: whether it holds is unknown)") from error
    return result


def _in_snapshot(connection: Connection, work: Work[T]) -> T:
    transaction = connection.begin()
    try:
        return work(connection)
    finally:
        transaction.rollback()
