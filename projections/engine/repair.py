"""Folding a key anew: after its dead letter was discarded or retried, or an event of it was left out after the fact."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from events.archive.reader import Archived
from events.errors import Poison
from events.event import Event, Position
from events.registry import decode_payload
from events.types.system import DeadletterDiscarded
from projections.engine.cache import RowCache
from projections.engine.fold import EFFECTIVE, DeadLetter, Fold, Folded, PartitionKey, Refusal
from projections.engine.shapes import RowKey
from projections.engine.source import DenseReader
from projections.engine.store import GenerationStore, read_letters
from projections.projection import Projection, Row

DISCARDED = "deadletter.discarded"

_UNFOLDABLE = ("killed", "unwritable")
"""Causes that folding again in memory cannot find out."""


@dataclass(frozen=True)
class Repaired:
    """What a key comes to without its dead letters so far; ``letters`` are those it was made from."""

    owner: PartitionKey
    folded: Folded
    letters: list[DeadLetter]


def discard_of(projection: Projection, archived: Archived) -> tuple[Event, str] | None:
    """The discarding event and the event id that it discards, when it concerns this projection."""
    if archived.type != DISCARDED or archived.verdict != EFFECTIVE:
        return None
    event = archived.event()
    try:
        payload = decode_payload(event)
    except Poison:
        return None
    if not isinstance(payload, DeadletterDiscarded) or payload.projection != projection.name:
        return None
    return event, payload.event_id


def without(
    store: GenerationStore, reader: DenseReader, cache: RowCache, archived: Archived, parked: Collection[PartitionKey]
) -> Repaired:
    """Fold the key of a discarding event without the event that it discards, as if that had never been.

    A dead letter is taken out and what waited behind it is folded. An event that had been folded (by newer code, say,
    before the rebuild came to its discard) is undone by folding the key from its first event.
    """
    found = discard_of(store.projection, archived)
    if found is None:
        raise ValueError(f"{archived.type} at {archived.position} discards nothing of {store.projection.name}")
    event, event_id = found
    owner = (event.org, event.key)
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    if any(letter.event_id == event_id for letter in letters):
        kept = [letter for letter in letters if letter.event_id != event_id]
        folded = _fold_letters(store, reader, cache, owner, kept, [archived], parked)
    else:
        folded = _fold_history(store, reader, owner, letters, archived.position)
    return Repaired(owner, folded, letters)


def again(store: GenerationStore, reader: DenseReader, owner: PartitionKey) -> Repaired:
    """Fold the dead letters of a key once more, in order, on the rows as they stand; whatever they died of."""
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    cache = RowCache(0)
    fold = Fold(store.projection, store.shapes, cache, lambda names: cache.learn(store.load(names)))
    return Repaired(owner, fold.run(reader.at([letter.position for letter in letters])), letters)


def _fold_letters(
    store: GenerationStore,
    reader: DenseReader,
    cache: RowCache,
    owner: PartitionKey,
    letters: list[DeadLetter],
    then: Iterable[Archived],
    parked: Collection[PartitionKey],
) -> Folded:
    fold = Fold(
        store.projection, store.shapes, cache, lambda names: cache.learn(store.load(names)),
        parked=set(parked) - {owner}, refused=_still_refused(letters),
    )  # fmt: skip
    return fold.run([*reader.at([letter.position for letter in letters]), *then])


def _fold_history(
    store: GenerationStore, reader: DenseReader, owner: PartitionKey, letters: list[DeadLetter], upto: Position
) -> Folded:
    history = [archived for archived in reader.scan(upto) if _is_of(archived, owner)]
    discards = {found[1] for archived in history if (found := discard_of(store.projection, archived))}
    cache = RowCache(0, complete=True)
    fold = Fold(store.projection, store.shapes, cache, cache.learn_absent, refused=_still_refused(letters))
    keys = fold.row_owners(history)
    folded = fold.run(archived for archived in history if archived.event().id not in discards)
    stale: dict[RowKey, Row | None] = {}
    for key in sorted(keys):
        stale.update(dict.fromkeys(store.load_key(owner[0], key)))
    folded.rows = {**stale, **folded.rows}
    return folded


def _is_of(archived: Archived, owner: PartitionKey) -> bool:
    event = archived.event()
    return (event.org, event.key) == owner


def _still_refused(letters: Iterable[DeadLetter]) -> dict[Position, Refusal]:
    return {letter.position: Refusal(letter.cause, letter.error) for letter in letters if letter.cause in _UNFOLDABLE}
