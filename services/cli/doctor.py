"""What ``refold doctor`` looks at: each check tells what it found and, where something is wrong, what to do."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from events.errors import RefoldError
from services.cli.check import Check
from services.embedded.data_dir import running_instance
from services.settings import Settings, unknown_variables

LOW_DISK_BYTES = 1 << 30


def examine(settings: Settings) -> list[Check]:
    """All checks, in the order in which a start would meet them."""
    checks = (_versions, _settings, _data, _disk, _redis, _sqlite, _store, _connections, _promises, _port, _embeddings)
    return [check(settings) for check in checks]


def _versions(settings: Settings) -> Check:
    system = f"{platform.system()} {platform.machine()}"
    return Check("versions", "ok", f"Refold {_version('refold') or '?'}, Python {platform.python_version()}, {system}")


def _settings(settings: Settings) -> Check:
    unknown = unknown_variables(os.environ)
    if unknown:
        return Check(
            "settings", "warning", f"set, but no setting: {', '.join(unknown)}", "docs/guides/settings.md lists them"
        )
    given = ", ".join(sorted(settings.environ()))
    return Check("settings", "ok", f"not at their defaults: {given}" if given else "all at their defaults")


def _data(settings: Settings) -> Check:
    folder = settings.data.resolve()
    instance = running_instance(settings.data)
    if instance is not None:
        return Check("data folder", "ok", f"{folder}, in use by pid {instance.pid} at {instance.url or '(starting)'}")
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Check("data folder", "bad", f"{existing} is not writable", "set REFOLD_DATA to a folder that you own")
    return Check("data folder", "ok", f"{folder}" if folder.exists() else f"{folder} (will be made)")


def _disk(settings: Settings) -> Check:
    folder = settings.data.resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / (1 << 30):,.1f} GiB free"
    if free < LOW_DISK_BYTES:
        return Check("disk", "warning", found, "a full disk stops publishing: free some space")
    return Check("disk", "ok", found)


def _redis(settings: Settings) -> Check:
    from services.cli.doctor_redis import look_at_redis

    return look_at_redis(settings)


def _sqlite(settings: Settings) -> Check:
    from events.database_engines import sqlite

    found = f"{sqlite.sqlite_version} ({sqlite.__name__.partition('.')[0]})"
    if settings.stores_url.startswith("sqlite") and sqlite.sqlite_version_info < (3, 51, 3):
        return Check("SQLite", "bad", found, "older than 3.51.3 can lose commits: pip install pysqlite3")
    return Check("SQLite", "ok", found)


def _store(settings: Settings) -> Check:
    if settings.stores_url.startswith("sqlite"):
        folder = Path(settings.stores_url.removeprefix("sqlite:///"))
        return Check("store", "ok", f"SQLite files in {folder}" + ("" if folder.exists() else " (will be made)"))
    import psycopg

    address = settings.stores_url.replace("postgresql+psycopg://", "postgresql://")
    try:
        with psycopg.connect(address, connect_timeout=3) as connection:
            found = connection.execute("SHOW server_version").fetchone()
    except psycopg.Error as error:
        reason = " ".join(str(error).split())[:200]
        return Check("store", "bad", f"PostgreSQL does not answer: {reason}", "correct REFOLD_DATABASE_URL")
    return Check("store", "ok", f"PostgreSQL {found[0] if found else '?'}")


def _connections(settings: Settings) -> Check:
    from services.cli.doctor_connections import look_at_connections

    return look_at_connections(settings)


def _promises(settings: Settings) -> Check:
    from services.cli.doctor_promises import look_at_promises

    return look_at_promises(settings)


def _port(settings: Settings) -> Check:
    where = f"{settings.http_host}:{settings.http_port}"
    if running_instance(settings.data) is not None or settings.http_port == 0:
        return Check("port", "ok", where)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.http_host, settings.http_port))
        except OSError as error:
            return Check("port", "bad", f"{where}: {error.strerror}", "say another one with `refold up --http PORT`")
    return Check("port", "ok", f"{where} is free")


def _embeddings(settings: Settings) -> Check:
    from services.cli.doctor_embeddings import look_at_embeddings

    return look_at_embeddings(settings)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def partitions(settings: Settings) -> int | None:
    """Partitions of the log that is there; None when there is none yet, or it cannot be asked."""
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    from events.archive.schema import log_config
    from events.database import Stores

    if settings.stores_url.startswith("sqlite") and not Path(settings.stores_url.removeprefix("sqlite:///")).exists():
        return None
    query = select(log_config.c.value).where(log_config.c.name == "partitions")
    try:
        db = Stores(settings.stores_url).log()
        try:
            value = db.read_now(lambda conn: conn.execute(query).scalar())
        finally:
            db.close()
    except (RefoldError, SQLAlchemyError):
        return None
    return None if value is None else int(value)
