"""Dead letters for people: list them, look into one, fold a key again, or discard an event for good."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from events.errors import Refused, Transient
from events.event import Position
from projections.engine import checkpoints, repair, tables
from projections.engine.fold import DeadLetter, PartitionKey, Refusal
from projections.engine.source import DenseReader, Source
from projections.engine.store import UNWRITABLE, GenerationStore, read_letters, unpark, write

TRIES = 5
"""Times that a retry begins anew because the owner parked further events of the key meanwhile."""


@dataclass(frozen=True)
class Retried:
    """What became of a key: events that are folded now, and those that are dead letters again."""

    folded: int
    left: list[DeadLetter]


def list_letters(
    conn: Connection, *, org: str | None = None, key: str | None = None, waiting: bool = True, limit: int = 1000
) -> list[DeadLetter]:
    """Dead letters of a generation in log order; without ``waiting``, only those that hold up a key."""
    table = tables.dead_letters
    query = select(table).order_by(table.c.partition, table.c.epoch, table.c.n).limit(limit)
    if org is not None:
        query = query.where(table.c.org == org)
    if key is not None:
        query = query.where(table.c.key == key)
    if not waiting:
        query = query.where(table.c.cause != "waiting")
    return [DeadLetter(partition, Position(epoch, n), *rest) for partition, epoch, n, *rest in conn.execute(query)]


def show(conn: Connection, event_id: str, *, org: str | None = None) -> list[DeadLetter]:
    """The dead letters of an event id (one for each org and key that has it), with their tracebacks.

    Raises Refused when there is none.
    """
    table = tables.dead_letters
    query = select(table).where(table.c.event_id == event_id).order_by(table.c.partition, table.c.epoch, table.c.n)
    if org is not None:
        query = query.where(table.c.org == org)
    found = [DeadLetter(partition, Position(epoch, n), *rest) for partition, epoch, n, *rest in conn.execute(query)]
    if not found:
        raise Refused(f"no dead letter has the event id {event_id!r}", code="no_dead_letter")
    return found


def retry(store: GenerationStore, source: Source, owner: PartitionKey) -> Retried:
    """Fold all dead letters of a key again, in order, through the upcasters of the code that runs.

    The partition's owner is fenced in the same transaction, since its cache knows nothing of this. Raises Refused when
    the key has no dead letters, Transient when the owner keeps parking events of the key meanwhile. When the store
    refuses the rows, the dead letters stay, the one to blame with that cause.
    """
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    if not letters:
        raise Refused(f"{owner[1]} has no dead letters in {store.projection.name}", code="no_dead_letter")
    reader = DenseReader(source, letters[0].partition)
    held: Refusal | None = None
    for _ in range(TRIES):
        repaired = repair.again(store, reader, owner, held)
        try:
            if store.db.write_now(partial(_replace, store=store, repaired=repaired)):
                return Retried(repaired.folded.applied, repaired.folded.letters)
        except Transient:
            raise
        except UNWRITABLE as error:
            held = repair.unwritable(error)
    raise Transient(f"{owner[1]} gets new events faster than it can be folded again; try again")


def discarding(letter: DeadLetter, projection: str, *, by: str = "", reason: str = "") -> dict[str, Any]:
    """The raw event that discards a dead letter, to be published; its id is derived, so that it is recorded once."""
    data = {
        "projection": projection,
        "event_id": letter.event_id,
        "partition_key": letter.key,
        "reason": reason,
        "by": by,
    }
    return {
        "type": repair.DISCARDED,
        "id": f"discard:{projection}:{letter.partition}:{letter.position}",
        "org": letter.org,
        "source": "refold/deadletters",
        "data": {name: value for name, value in data.items() if value},
    }


def _replace(conn: Connection, store: GenerationStore, repaired: repair.Repaired) -> bool:
    partition = repaired.letters[0].partition
    # first, as in every commit: it fences the owner, and makes it wait if it is committing
    checkpoints.raise_owner_epoch(conn, partition)
    if read_letters(conn, repaired.owner) != repaired.letters:
        return False
    unpark(conn, repaired.owner)
    write(conn, store.shapes, repaired.folded, partition)
    return True
