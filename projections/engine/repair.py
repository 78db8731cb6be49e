"""Folding a key anew: after its dead letter was discarded or retried, or an event of it was left out after the fact."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from events.archive.reader import Archived
from events.archive.schema import EFFECTIVE
from events.errors import Poison
from events.event import Event, Position
from events.registry import decode_payload
from events.types.system import DeadletterDiscarded
from projections.engine.cache import RowCache
from projections.engine.fold import DeadLetter, Fold, Folded, PartitionKey, Refusal
from projections.engine.shapes import RowKey
from projections.engine.source import DenseReader
from projections.engine.store import GenerationStore, read_letters
from projections.projection import Projection, Row

DISCARDED = "deadletter.discarded"

UNFOLDABLE = ("killed", "unwritable", "machine")
"""Causes that folding again in memory cannot find out, or not reliably."""


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
    store: GenerationStore,
    reader: DenseReader,
    cache: RowCache,
    archived: Archived,
    parked: Collection[PartitionKey],
    held: Refusal | None = None,
) -> Repaired:
    """Fold the key of a discarding event without the event that it discards, as if that had never been.

    A dead letter is taken out and what waited behind it is folded. An event that had been folded (by newer code, say,
    before the rebuild came to its discard) is undone by folding the key from its first event. ``held`` is why the
    first event that waited stays a dead letter, when the store refused the rows of those that waited.
    """
    found = discard_of(store.projection, archived)
    if found is None:
        raise ValueError(f"{archived.type} at {archived.position} discards nothing of {store.projection.name}")
    event, event_id = found
    owner = (event.org, event.key)
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    if any(letter.event_id == event_id for letter in letters):
        kept = [letter for letter in letters if letter.event_id != event_id]
        refused = _still_refused(kept) | _held(kept[:1], held)
        folded = _fold_letters(store, reader, cache, owner, kept, [archived], parked, refused)
    else:
        folded = _fold_history(store, reader, owner, letters, archived.position)
    return Repaired(owner, folded, letters)


def again(store: GenerationStore, reader: DenseReader, owner: PartitionKey, held: Refusal | None = None) -> Repaired:
    """Fold the dead letters of a key once more, in order, on the rows as they stand; whatever they died of.

    ``held`` is why the first one that was ``unwritable`` (or else the first) stays a dead letter, when the store
    refused the rows.
    """
    letters = store.db.read_now(lambda conn: read_letters(conn, owner))
    cache = RowCache(0)
    suspects = [letter for letter in letters if letter.cause == "unwritable"] or letters
    fold = Fold(
        store.projection, store.shapes, cache, lambda names: cache.learn(store.load(names)),
        refused=_held(suspects[:1], held), blamed={letter.position for letter in letters},
    )  # fmt: skip
    return Repaired(owner, fold.run(reader.at([letter.position for letter in letters])), letters)


def _fold_letters(
    store: GenerationStore,
    reader: DenseReader,
    cache: RowCache,
    owner: PartitionKey,
    letters: list[DeadLetter],
    then: Iterable[Archived],
    parked: Collection[PartitionKey],
    refused: Mapping[Position, Refusal],
) -> Folded:
    fold = Fold(
        store.projection, store.shapes, cache, lambda names: cache.learn(store.load(names)),
        parked=set(parked) - {owner}, refused=refused,
    )  # fmt: skip
    return fold.run([*reader.at([letter.position for letter in letters]), *then])


def _fold_history(
    store: GenerationStore, reader: DenseReader, owner: PartitionKey, letters: list[DeadLetter], upto: Position
) -> Folded:
    history = [archived for archived in reader.scan(upto) if _is_of(archived, owner)]
    # the last discard of an event counts for it, and none that stands before it does
    discards = {found[1]: one.position for one in history if (found := discard_of(store.projection, one))}
    cache = RowCache(0, complete=True)
    fold = Fold(store.projection, store.shapes, cache, cache.learn_absent, refused=_still_refused(letters))
    keys = fold.row_owners(history)
    folded = fold.run(one for one in history if discards.get(one.event().id, one.position) <= one.position)
    stale: dict[RowKey, Row | None] = {}
    for key in sorted(keys):
        stale.update(dict.fromkeys(store.load_key(owner[0], key)))
    folded.rows = {**stale, **folded.rows}
    return folded


def _is_of(archived: Archived, owner: PartitionKey) -> bool:
    event = archived.event()
    return (event.org, event.key) == owner


def unwritable(error: Exception) -> Refusal:
    """Why an event is parked whose rows the store refuses."""
    return Refusal("unwritable", f"{type(error).__name__}: {error}"[:2000])


def _held(letters: Iterable[DeadLetter], held: Refusal | None) -> dict[Position, Refusal]:
    return {} if held is None else {letter.position: held for letter in letters}


def _still_refused(letters: Iterable[DeadLetter]) -> dict[Position, Refusal]:
    return {letter.position: Refusal(letter.cause, letter.error) for letter in letters if letter.cause in UNFOLDABLE}
