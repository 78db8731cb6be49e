"""Migrations of the log store, by alembic: what cannot be derived. Read models are refolded instead (DESIGN 5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from events.database import Database
from events.errors import SetupError

if TYPE_CHECKING:
    from alembic.config import Config

_ONE_PROCESS = 0x5EF01D
"""PostgreSQL advisory lock that lets one process migrate at a time; SQLite's write lock does the same."""

_FIRST = "0001"

_one_thread = threading.Lock()
"""Alembic hands its context to scripts through a global."""

# alembic is imported only where a store has to be migrated: it would be a fifth of the start of every process


def migrate(db: Database, revision: str = "head") -> None:
    """Bring the log store up to ``revision``, in one transaction; nothing happens when it is there already.

    May be called by several processes at once, and again after one was killed. A store that newer code has migrated is
    left as it is, where code of this version can work on it beside that: during a rolling deploy, or after one was
    taken back. Raises SetupError where it cannot, and what ``Database.write_now`` raises.
    """
    if revision == "head" and db.write_now(_stored) == newest():
        return
    from alembic import command

    db.write_now(lambda conn: _run(conn, command.upgrade, revision, beside_newer=True))


def downgrade(db: Database, revision: str) -> None:
    """Take the log store back to ``revision`` (``base``: nothing is left), in one transaction.

    Raises SetupError when newer code has migrated it.
    """
    from alembic import command

    db.write_now(lambda conn: _run(conn, command.downgrade, revision))


def current(db: Database) -> str | None:
    """The revision that the log store has; None for an empty one."""
    return db.write_now(_stored)


def newest() -> str:
    """The revision that this code migrates to: the number that its last script's name begins with."""
    return max(script.name.partition("_")[0] for script in (Path(__file__).parent / "versions").glob("[0-9]*.py"))


def _stored(conn: Connection) -> str | None:
    if not inspect(conn).has_table("alembic_version"):
        return None
    found = conn.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _run(conn: Connection, step: Callable[[Config, str], None], revision: str, *, beside_newer: bool = False) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = conn
    if conn.dialect.name == "postgresql":
        conn.execute(text(f"SELECT pg_advisory_xact_lock({_ONE_PROCESS})"))
    with _one_thread:
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        stored = _stored(conn)
        if stored is not None and stored not in known:
            if beside_newer and _needs(conn) in known:
                return
            raise SetupError(
                f"the store was migrated to {stored} by a newer Refold, which this one does not know: "
                "upgrade Refold, or restore a backup"
            )
        step(config, revision)


def _needs(conn: Connection) -> str:
    """The oldest revision that code must know to work on this store: that of the last migration that says so."""
    needs = text("SELECT value FROM log_config WHERE name = 'needs_revision'")
    return str(conn.execute(needs).scalar() or _FIRST)
