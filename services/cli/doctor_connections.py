"""What ``refold doctor`` says of connections: how many one process may hold, against what PostgreSQL gives."""

from __future__ import annotations

import psycopg

from events.database import POSTGRES_WRITERS, READERS
from events.errors import SetupError
from services.card_templates import projections_of
from services.cli.check import Check
from services.settings import Settings

REBUILD = 20
"""About what a rebuild or a dry run holds while it goes on."""

_TIMEOUT_S = 3
_ASK = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- coalesce(current_setting('reserved_connections', true), '0')::int, (SELECT count(*) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid != pg_backend_pid())"
)


def most_of_a_worker(projections: int) -> int:
    """Connections that ``refold worker`` holds at most: each store has threads of its own, with one each."""
    return (1 + projections) * (POSTGRES_WRITERS + READERS)


def most_of_an_instance(projections: int, workers: int) -> int:
    """Connections that ``refold up`` and its worker processes hold at most: its API reads beside them."""
    return most_of_a_worker(projections) * (1 + workers) + projections * READERS


def look_at_connections(settings: Settings) -> Check:
    """Whether PostgreSQL has connections enough for an instance as it is set up, and one rebuild."""
    if settings.stores_url.startswith("sqlite"):
        return Check("connections", "ok", "SQLite limits none")
    try:
        projections = len(projections_of(settings))
    except SetupError as error:
        return Check("connections", "bad", str(error), "correct REFOLD_PROJECTIONS or REFOLD_CARD_TEMPLATES")
    address = settings.stores_url.replace("postgresql+psycopg://", "postgresql://")
    try:
        with psycopg.connect(address, connect_timeout=_TIMEOUT_S) as connection:
            given, used = connection.execute(_ASK).fetchone() or (0, 0)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())[:200]
        return Check("connections", "warning", f"PostgreSQL cannot be asked: {reason}", "the check `store` says more")
    worker, instance = most_of_a_worker(projections), most_of_an_instance(projections, settings.workers)
    found = (
        f"a worker holds up to {worker}, `refold up` as it is set up {instance}, a rebuild about {REBUILD} more; "
        f"PostgreSQL gives {given}, {used} of them are in use"
    )
    if instance + REBUILD <= given:
        return Check("connections", "ok", found)
    return Check("connections", "warning", found, "raise max_connections, or let workers fold less (--projections)")
