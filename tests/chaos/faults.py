"""Faults at every point where a process awaits the outside: counted, and one of them armed with a signal.

A point is before each SQL statement, before and after each commit, before each Redis command and after its answer: what
lies between two points has no effect outside, so that nothing else can differ. The drivers' own methods are wrapped;
the product knows nothing of it. Processes are forked from one that has imported everything, and has no threads.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import psycopg
from redis.asyncio.connection import AbstractConnection
from sqlalchemy import Connection

from events import database_engines as engines
from events.database import Database

T = TypeVar("T")

DEADLINE_S = 60.0
_POLL_S = 0.002


class Points:
    """Counts the points of this process; at number ``at`` (1 is the first) it sends itself ``signum``."""

    def __init__(self) -> None:
        self.count = 0
        self.counts = False
        self.at = 0
        self.signum = signal.SIGKILL
        self.names: list[str] = []
        self._quiet = threading.local()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Count nothing of what this thread does: it looks, for the test."""
        self._quiet.on = True
        try:
            yield
        finally:
            self._quiet.on = False

    def arm(self, at: int, signum: signal.Signals) -> None:
        """Count from here on."""
        self.at, self.signum, self.counts = at, signum, True

    def disarm(self) -> None:
        """Count no more."""
        self.counts = False

    def pass_one(self, name: str) -> None:
        """The process is about to wait for ``name``, or has its answer."""
        if not self.counts or getattr(self._quiet, "on", False):
            return
        self.count += 1
        self.names.append(name)
        if self.count == self.at:
            os.kill(os.getpid(), self.signum)


POINTS = Points()


class _Cursor(engines.sqlite.Cursor):  # type: ignore[misc, name-defined]
    def execute(self, statement: str, *rest: Any) -> Any:
        if not statement.startswith(("PRAGMA", "BEGIN DEFERRED")):
            POINTS.pass_one(statement)
        return super().execute(statement, *rest)

    def executemany(self, statement: str, *rest: Any) -> Any:
        POINTS.pass_one(statement)
        return super().executemany(statement, *rest)


class _Connection(engines.sqlite.Connection):  # type: ignore[misc, name-defined]
    def cursor(self, *_: Any) -> Any:
        return super().cursor(_Cursor)

    def commit(self) -> None:
        POINTS.pass_one("COMMIT")
        super().commit()
        POINTS.pass_one("committed")


def wrap_drivers() -> None:
    """Wrap SQLite's, PostgreSQL's and Redis' drivers, once in a process."""
    connect = engines.sqlite.connect
    engines.sqlite.connect = lambda *args, **kwargs: connect(*args, factory=_Connection, **kwargs)
    _wrap(psycopg.Cursor, "execute", before=lambda _, statement, *rest: str(statement))
    _wrap(psycopg.Cursor, "executemany", before=lambda _, statement, *rest: str(statement))
    _wrap(psycopg.Cursor, "copy", before=lambda _, statement, *rest: str(statement))
    _wrap(psycopg.Connection, "commit", before=lambda _: "COMMIT", after="committed")
    _wrap_redis()


def peek(db: Database, work: Callable[[Connection], T]) -> T:
    """``work`` on a snapshot of a store, in this thread, uncounted."""
    with POINTS.quietly(), engines.reader(db.url, db.schema).connect() as connection:
        return work(connection)


def _wrap(kind: Any, method: str, *, before: Callable[..., str], after: str = "") -> None:
    original = getattr(kind, method)

    @wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        POINTS.pass_one(before(self, *args))
        result = original(self, *args, **kwargs)
        if after:
            POINTS.pass_one(after)
        return result

    setattr(kind, method, wrapped)


def _wrap_redis() -> None:
    send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

    @wraps(send)
    async def sending(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        text = command if isinstance(command, bytes) else b"".join(command)
        if b"CLIENT" not in text[:40] and b"HELLO" not in text[:40]:
            POINTS.pass_one(f"redis {text[:120]!r}")
        return await send(self, command, *args, **kwargs)

    @wraps(read)
    async def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await read(self, *args, **kwargs)
        if answer not in (b"OK", "OK"):
            POINTS.pass_one("redis answered")
        return answer

    AbstractConnection.send_packed_command = sending  # type: ignore[method-assign]
    AbstractConnection.read_response = reading  # type: ignore[method-assign]


@dataclass
class Child:
    """A forked process. ``state``: running, stopped, or how it ended: its exit code, negative for a signal."""

    pid: int
    name: str
    state: str | int = "running"

    def wait(self, limit_s: float = DEADLINE_S, *, stopped: bool = False) -> str | int:
        """Until it ends (or, with ``stopped``, stops), at most so long; the state."""
        deadline = time.monotonic() + limit_s
        while self.poll() == "running" or (self.state == "stopped" and not stopped):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return self.state

    def poll(self) -> str | int:
        """The state now."""
        if isinstance(self.state, str):
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid and os.WIFSTOPPED(status):
                self.state = "stopped"
            elif pid and os.WIFCONTINUED(status):
                self.state = "running"
            elif pid:
                self.state = os.waitstatus_to_exitcode(status)
        return self.state

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if isinstance(self.poll(), str):
            os.kill(self.pid, signum)
            if signum == signal.SIGCONT:
                self.state = "running"

    def must_end_well(self, limit_s: float = DEADLINE_S) -> None:
        """Wait for exit code 0; its own message stands above on standard error."""
        assert self.wait(limit_s) == 0, f"{self.name}: {self.state}"


def fork(name: str, work: Callable[[], Any], children: list[Child]) -> Child:
    """Run ``work`` in a child; its exit code is 1 when that raises."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001  whatever it is, the parent must learn of it, and never run on as a copy
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    child = Child(pid, name)
    children.append(child)
    return child


def prepare_to_fork() -> None:
    """After everything is imported: what is here is shared by all children."""
    wrap_drivers()
    gc.collect()
    gc.freeze()
