"""What a store's error means to its caller: it passes (Transient), it needs a person (SetupError), or it is a bug."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from events.database_engines import sqlite
from events.errors import RefoldError, SetupError, Transient

DATABASE_ERRORS: tuple[type[Exception], ...] = (SQLAlchemyError, psycopg.Error, sqlite.Error)
"""Everything that a connection raises; bulk statements use the drivers directly."""

_SQLITE_PASSES = {"BUSY", "LOCKED", "FULL", "IOERR", "NOMEM", "PROTOCOL", "INTERRUPT", "CANTOPEN"}
_SQLITE_SETUP = {"READONLY", "PERM", "AUTH", "NOTADB", "CORRUPT"}
_PG_PASSES = ("08", "40", "53", "55", "57", "58", "25P", "25006")
_PG_SETUP = ("28", "3D", "42501")


class CommitUnknown(Transient):
    """The store failed during a commit: whether it holds is unknown. Read the checkpoint again to know."""


def surfaced(error: BaseException) -> RefoldError | None:
    """The error to raise instead of a driver's, with the cause in its message; None for a mistake in the statement."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, psycopg.Error):
        return _postgres(cause)
    if isinstance(cause, sqlite.Error):
        return _sqlite(cause)
    return None


def _sqlite(cause: Any) -> RefoldError | None:
    name = str(getattr(cause, "sqlite_errorname", "")).removeprefix("SQLITE_")
    family = name.split("_")[0]
    if family in _SQLITE_PASSES:
        return Transient(f"the SQLite store failed for now: {cause} ({name})")
    if family in _SQLITE_SETUP:
        return SetupError(f"the SQLite store cannot be used: {cause} ({name}); check its file and folder")
    return None


def _postgres(cause: psycopg.Error) -> RefoldError | None:
    state = cause.sqlstate
    text = str(cause).strip().replace("\n", " ")
    if state is None:
        # no answer from a server: the connection could not be made, or was lost
        lost = isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError))
        return Transient(f"PostgreSQL cannot be reached: {text}") if lost else None
    if state.startswith(_PG_SETUP):
        return SetupError(f"PostgreSQL refuses: {text} ({state}); check the URL of the store and the role's rights")
    if state.startswith(_PG_PASSES):
        return Transient(f"PostgreSQL failed for now: {text} ({state})")
    return None
