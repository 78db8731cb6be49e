"""What a job process does for a retry: it folds keys again that stand still. An event that kills kills only that."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from events.database import Database, Stores
from events.errors import Refused
from projections import generations
from projections.engine import dead_letters
from projections.engine.fold import DeadLetter, PartitionKey
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.scope import Scope
from services.api.telling import say

SHOWN = 100
"""Dead letters that are left, in an answer, at most."""


def retry(projection: Projection, stores: Stores, log: Database, scope: Scope) -> dict[str, Any]:
    """Fold the dead letters in a scope again, in order, each key by itself; what became of them.

    Keys on which processes died are left out, unless the scope is that key. Raises Refused, after telling its code,
    when the generation was made by other code (its rebuild folds everything anew), or the key has no dead letters.
    """
    try:
        return _retry(projection, stores, log, scope)
    except Refused as refusal:
        say(progress={"code": refusal.code})
        raise


def _retry(projection: Projection, stores: Stores, log: Database, scope: Scope) -> dict[str, Any]:
    generation = log.read_now(partial(generations.serving, projection=projection))
    if generation is None or not generation.matches(projection):
        raise Refused(
            f"what is read of {projection.name} was made by other code than this: `refold rebuild {projection.name}` "
            "folds its dead letters again, with all the rest",
            code="stale",
        )
    told: Counter[str] = Counter()
    left: list[DeadLetter] = []
    db = stores.generation(generation.name)
    try:
        store, source = GenerationStore(projection, db), ArchiveSource(log)
        for owner in _owners(db, scope):
            say(progress={"phase": owner[1]})
            retried = dead_letters.retry(store, source, owner)
            told.update(keys=1, folded=retried.folded, keys_left=bool(retried.left), letters_left=len(retried.left))
            left += retried.left[: SHOWN - len(left)]
    finally:
        db.close()
    counts = {name: told[name] for name in ("folded", "keys", "keys_left", "letters_left")}
    shown = [letter_document(projection.name, letter) for letter in left]
    return {"state": "failed" if left else "folded", **counts, "left": shown}


def _owners(db: Database, scope: Scope) -> list[PartitionKey]:
    if scope.org is not None and scope.key is not None:
        return [(scope.org, scope.key)]
    return db.read_now(partial(dead_letters.parked_keys, org=scope.org))


def letter_id(projection: str, letter: DeadLetter) -> str:
    """How people name it."""
    return f"{projection}:{letter.partition}:{letter.position}"


def letter_document(projection: str, letter: DeadLetter) -> dict[str, Any]:
    """What lists show of it."""
    return {
        "id": letter_id(projection, letter),
        "projection": projection,
        "key": letter.key,
        "event_id": letter.event_id,
        "type": letter.type,
        "cause": letter.cause,
        "error": letter.error,
        "partition": letter.partition,
        "position": str(letter.position),
    }
