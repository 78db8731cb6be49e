"""A pack as events of the scope that takes it in. Pure: the same pack, scope and factor make the same events.

Memories become ``memory.proposed``, so that the curator judges them as it does any others: secrets, copies, what
contradicts a source that weighs more. Beliefs become ``belief.proposed``, but for those that read like an order or hold
a secret: their confidence, times a factor, is the prior, for what was true elsewhere need not be true here; their
evidence is shown, and not counted. Notes and settlements belong to tasks and sessions that do not exist here: taken for
those of a run they would change what sessions start from. So they are kept as they are, in ``pack.imported``, and read
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import orjson

from events.types.memory import MemoryProposed
from projections.queries.rows import is_over
from services.curation.proposal import Candidate, Rejected, candidate_of
from services.curation.quality import not_own_output
from services.curation.safety import mark_orders, without_credentials, without_unseen
from services.packs.form import BeliefItem, Item, MemoryItem, Pack, Scope

SOURCE = "refold/pack"
_COUNTED = ("tool_reliability", "plan_pattern")
"""Kinds whose words tell counts: those of another place."""
MOST_EVIDENCE = 100
"""Documents of evidence that a belief brings with it, at most: the latest."""
PART_BYTES = 256 << 10
"""Of notes and settlements in one event, about; one that is larger has an event of its own."""


@dataclass(frozen=True)
class Target:
    """Where a pack goes, and what its confidences are multiplied with (0..1)."""

    scope: Scope
    factor: float

    def id(self, pack: str, part: str) -> str:
        """The id of an event: the same import gives the same one, another factor another one."""
        return f"pack-{pack[:32]}-{self.factor:g}-{part}"


def memory_events(pack: Pack, target: Target, digest: str, now: datetime) -> dict[str, dict[str, Any]]:
    """A proposal for each memory that has not expired by ``now``, by its name in the pack."""
    return {
        item.memory: _memory(item, target, target.id(digest, f"memory-{number}"))
        for number, item in enumerate(pack.memories)
        if not is_expired(item, now)
    }


def belief_events(
    pack: Pack, target: Target, digest: str, against: Mapping[str, Rejected]
) -> dict[str, dict[str, Any]]:
    """A proposal for each belief that there are no ``objections`` to, by its name, which it keeps."""
    return {
        item.belief: _belief(item, target, target.id(digest, f"belief-{number}"))
        for number, item in enumerate(pack.beliefs)
        if item.belief not in against
    }


def objections(pack: Pack) -> dict[str, Rejected]:
    """Why beliefs may not enter, by name: rules are told to agents, so a pack's words are judged like a memory's."""
    judged = {item.belief: _objection(item.statement) or _objection(item.tendency) for item in pack.beliefs}
    return {name: why for name, why in judged.items() if why is not None}


def _objection(text: str) -> Rejected | None:
    at: Candidate | Rejected = candidate_of(MemoryProposed(content=text or "-"))
    for stage in (without_unseen, without_credentials, not_own_output):
        if isinstance(at, Rejected):
            return at
        at = stage(at)
    if not isinstance(at, Rejected) and mark_orders(at).trust == "data":
        return Rejected("instruction", "it tells its reader to act against its people")
    return at if isinstance(at, Rejected) else None


def kept_events(pack: Pack, target: Target, digest: str) -> list[dict[str, Any]]:
    """Notes and settlements in as few events as hold them."""
    made = []
    for sort, items in (("notes", pack.notes), ("settlements", pack.settlements)):
        for number, documents in enumerate(_portions(items)):
            data = {"pack": digest[:32], "digest": digest, sort: documents}
            made.append(_event(target, target.id(digest, f"{sort}-{number}"), "pack.imported", data))
    return made


def report_event(target: Target, digest: str, data: Mapping[str, Any], time: str) -> dict[str, Any]:
    """The event that says what was in a pack and what was done: once it is there, the import is done."""
    whole = {"pack": digest[:32], "digest": digest, **data}
    return _event(target, target.id(digest, "report"), "pack.imported", whole, time)


def is_expired(item: MemoryItem, now: datetime) -> bool:
    """Whether a memory's time to live has ended: it was counted from when it was said last."""
    return bool(item.last_verified) and is_over(item.last_verified, item.ttl_s, now)


def _memory(item: MemoryItem, target: Target, id: str) -> dict[str, Any]:
    taken = ("content", "kind", "memory_type", "entity", "attribute", "tags", "ttl_s", "trust")
    data = {name: value for name in taken if (value := getattr(item, name)) not in (None, "", [])}
    if item.confidence is not None:
        data["confidence"] = _lowered(item.confidence, target)
    data |= {"source": "pack", "infer": False}
    # when it was said last, wherever: being carried elsewhere makes nothing fresh
    return _event(target, id, "memory.proposed", data, item.last_verified or item.created)


def _belief(item: BeliefItem, target: Target, id: str) -> dict[str, Any]:
    taken = ("belief", "kind", "statement", "trigger", "tendency", "limits")
    data = {name: value for name in taken if (value := getattr(item, name)) not in ("", {})}
    data["confidence"] = _lowered(item.confidence, target)
    if item.kind in _COUNTED and item.statement:
        data["statement"] = f"elsewhere, {item.statement}"
    if item.evidence:
        data["elsewhere"] = item.evidence[:MOST_EVIDENCE]
    return _event(target, id, "belief.proposed", data, item.last_verified)


def _lowered(confidence: float, target: Target) -> float:
    return min(max(round(confidence * target.factor, 6), 0.0), 1.0)


def _event(target: Target, id: str, type: str, data: Mapping[str, Any], time: str = "") -> dict[str, Any]:
    made = {
        "id": id,
        "type": type,
        "source": SOURCE,
        **target.scope.names,
        "data": {**data, "scope": target.scope.level},
    }
    return {**made, "time": time} if time else made


def _portions(items: Sequence[Item]) -> Iterator[list[Any]]:
    """Items as documents, so many together as fit into one event."""
    portion: list[Any] = []
    size = 0
    for item in items:
        document = msgspec.to_builtins(item)
        weight = len(orjson.dumps(document))
        if portion and size + weight > PART_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(document)
        size += weight
    if portion:
        yield portion
