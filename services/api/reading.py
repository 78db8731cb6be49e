"""Reading one read model for a request: a document or a page, with what its reader must know about it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, exists, select

from events.archive.queries import LastOfKey, last_of_key
from events.keys import partition_of
from events.tokens import write_token
from projections.engine import tables
from services.api.problems import Problem
from services.composition import Backend

T = TypeVar("T")

_PARKED = tables.parked_keys.c
_IS_INCOMPLETE = select(exists().where(_PARKED.org == bindparam("of_org"), _PARKED.key == bindparam("of_key")))
# made once: building a statement costs more than running it


class Found(NamedTuple):
    """What a read found, and how far the read model was.

    ``note`` says which generation answered, whether it had ``reached`` the token asked for, whether it is ``stale``
    (made by other code) and whether it is ``incomplete`` (an event of this key could not be folded).
    """

    value: Any
    note: dict[str, Any]


async def read(
    backend: Backend,
    projection: str,
    work: Callable[[Connection], T],
    *,
    org: str,
    key: str = "",
    after: str | None = None,
) -> Found:
    """Run ``work`` on a snapshot of the read model; waits for ``after`` as long as the settings allow."""

    def noted(conn: Connection) -> tuple[T, bool]:
        incomplete = key and conn.execute(_IS_INCOMPLETE, {"of_org": org, "of_key": key}).scalar()
        return work(conn), bool(incomplete)

    found = await backend.read_models.read(projection, noted, after, backend.settings.read_timeout_s)
    value, incomplete = found.value
    note = {
        "generation": found.generation,
        "reached": found.reached,
        "stale": found.stale,
        "incomplete": incomplete,
    }
    return Found(value, note)


def missing(found: Found, code: str, detail: str) -> Problem:
    """The answer where a read found nothing: 404, but 503 where what is asked for may only not be folded yet.

    Who is told that there is nothing of a task begins it anew, and repeats what was done.
    """
    if found.note["reached"]:
        return Problem(404, code, detail)
    late = f"{found.note['generation']} has not folded the position that was asked for, so this may change: ask again"
    return Problem(503, "behind", f"{detail}; {late}", read=found.note)


async def newest(backend: Backend, org: str, key: str) -> str:
    """The token of the last event that the archive holds of a key; empty while there is none.

    A read after it misses nothing of the key that is durable.
    """
    return token_of(backend, org, key, await backend.db.read(partial(last_of_key, org=org, key=key)))


def token_of(backend: Backend, org: str, key: str, last: LastOfKey | None) -> str:
    """The token to read after the last event of a key, once that is known; empty for none."""
    return "" if last is None else write_token([(partition_of(org, key, backend.partitions), last.position)])


def now() -> datetime:
    """The moment that a read computes ages and decay for."""
    return datetime.now(UTC)
