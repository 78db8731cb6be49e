"""Dead letters for people: list them, look into one, fold a key again, or discard an event for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, select, tuple_

from events.errors import Refused, Transient
from events.event import Position
from projections.engine import checkpoints, repair, tables
from projections.engine.fold import DeadLetter, PartitionKey, Refusal
from projections.engine.source import DenseReader, Source
from projections.engine.store import UNWRITABLE, GenerationStore, read_letters, unpark, write

TRIES = 5
"""Times that a retry begins anew because the owner parked further events of the key meanwhile."""


Place = tuple[int, int, int]
"""Partition, epoch and n: where a dead letter stands."""


@dataclass(frozen=True)
class Retried:
    """What became of a key: events that are folded now, and those that are dead letters again."""

    folded: int
    left: list[DeadLetter]


def list_letters(
    conn: Connection,
    *,
    org: str | None = None,
    key: str | None = None,
    type: str | None = None,
    cause: str | None = None,
    waiting: bool = True,
    after: Place | None = None,
    limit: int = 1000,
) -> list[DeadLetter]:
    """Dead letters of a generation in log order, those behind ``after``; of an organisation, key, event type, cause.

    Without ``waiting``, only those that hold up a key.
    """
    table = tables.dead_letters
    query = select(table).order_by(table.c.partition, table.c.epoch, table.c.n).limit(limit)
    for column, value in ((table.c.org, org), (table.c.key, key), (table.c.type, type), (table.c.cause, cause)):
        if value is not None:
            query = query.where(column == value)
    if not waiting:
        query = query.where(table.c.cause != "waiting")
    if after is not None:
        query = query.where(tuple_(table.c.partition, table.c.epoch, table.c.n) > after)
    return [_letter(row) for row in conn.execute(query)]


def find(conn: Connection, place: Place, org: str) -> DeadLetter | None:
    """The dead letter at a place, if it is the organisation's."""
    table = tables.dead_letters
    partition, epoch, n = place
    of = (table.c.partition == partition, table.c.epoch == epoch, table.c.n == n, table.c.org == org)
    row = conn.execute(select(table).where(*of)).first()
    return None if row is None else _letter(row)


def parked_keys(conn: Connection, org: str | None = None) -> list[PartitionKey]:
    """The keys (of an organisation) that stand still behind a dead letter, but for those on which processes died.

    In the order of their first dead letters.
    """
    table, letters = tables.parked_keys, tables.dead_letters
    deadly = select(letters.c.org, letters.c.key).where(letters.c.cause == "killed")
    query = select(table.c.org, table.c.key).order_by(table.c.partition, table.c.epoch, table.c.n)
    if org is not None:
        query, deadly = query.where(table.c.org == org), deadly.where(letters.c.org == org)
    spared = {(of, key) for of, key in conn.execute(deadly)}
    return [(of, key) for of, key in conn.execute(query) if (of, key) not in spared]


def show(conn: Connection, event_id: str, *, org: str | None = None) -> list[DeadLetter]:
    """The dead letters of an event id (one for each org and key that has it), with their tracebacks.

    Raises Refused when there is none.
    """
    table = tables.dead_letters
    query = select(table).where(table.c.event_id == event_id).order_by(table.c.partition, table.c.epoch, table.c.n)
    if org is not None:
        query = query.where(table.c.org == org)
    found = [_letter(row) for row in conn.execute(query)]
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


def _letter(row: Sequence[Any]) -> DeadLetter:
    partition, epoch, n, *rest = row
    return DeadLetter(partition, Position(epoch, n), *rest)


def _replace(conn: Connection, store: GenerationStore, repaired: repair.Repaired) -> bool:
    partition = repaired.letters[0].partition
    # first, as in every commit: it fences the owner, and makes it wait if it is committing
    checkpoints.raise_owner_epoch(conn, partition)
    if read_letters(conn, repaired.owner) != repaired.letters:
        return False
    unpark(conn, repaired.owner)
    write(conn, store.shapes, repaired.folded, partition)
    return True
