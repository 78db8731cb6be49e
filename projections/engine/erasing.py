"""What an erasure leaves of the keys that it concerns: each folded anew from what its events still say.

A fold that had seen the words comes to what one comes to that never did: the key's rows, its dead letters and whether
it is parked are as its own events up to the erasure make them, without those that are erased.
"""

from __future__ import annotations

from collections.abc import Iterator

from events.archive.erasing import read_erased_keys
from events.archive.subjects import ERASURE
from events.database import Database
from events.event import Event, Position, Recorded
from projections.engine.fold import Folded, PartitionKey
from projections.engine.past import fold_past
from projections.engine.shapes import RowKey
from projections.engine.store import GenerationStore, read_letters
from projections.projection import Row

ROWS = 20_000
"""Rows of keys that are made anew in one transaction, about."""


def made_anew(
    store: GenerationStore, log: Database, partition: int, erasure: Position
) -> Iterator[tuple[list[PartitionKey], Folded]]:
    """The keys that lost events to an erasure, some at a time, with what is left of each up to there.

    ``rows`` hold None for those that are gone. Raises Transient as ``fold_past`` does.
    """
    owners: list[PartitionKey] = []
    folded = Folded()
    for owner in log.read_now(lambda conn: read_erased_keys(conn, partition, erasure)):
        _add(store, log, owner, erasure, partition, folded)
        owners.append(owner)
        if len(folded.rows) >= ROWS:
            yield owners, folded
            owners, folded = [], Folded()
    if owners:
        yield owners, folded


def _add(
    store: GenerationStore, log: Database, owner: PartitionKey, erasure: Position, partition: int, folded: Folded
) -> None:
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    past = fold_past(store.projection, log, owner, erasure, letters)
    gone: dict[RowKey, Row | None] = dict.fromkeys(store.load_key(owner[0], _row_owner(store, owner, partition)))
    folded.rows |= gone | past.rows
    folded.letters += past.letters
    if past.letters:
        folded.parked[owner] = min(letter.position for letter in past.letters)


def _row_owner(store: GenerationStore, owner: PartitionKey, partition: int) -> str:
    """The key that owns the rows of a partition key: a function of that alone."""
    org, key = owner
    event = Event(id="", type=ERASURE, time="", org=org, key=key, digest="")
    return store.projection.key(Recorded(partition, Position(0, 0), event, None))
