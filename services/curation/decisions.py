"""Decisions as events: what the stages found out about everything that waits in a scope, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from events.event import Event, Recorded
from events.registry import EVENT_TYPES
from events.types.memory import MemoryProposed
from services.curation.pipeline import decide
from services.curation.proposal import Candidate, Rejected
from services.curation.view import ScopeView

BATCH = 128
"""Proposals decided together, at most."""


@dataclass(frozen=True)
class Decided:
    """One event to publish: derived from ``source``, the proposal's event, with ``part`` in its id."""

    source: Event
    part: str
    type: str
    data: dict[str, Any]


def decide_all(view: ScopeView, *, batch: int = BATCH) -> list[Decided]:
    """Decide what is pending, each in the knowledge of those before it. The view is left as the log has it."""
    made: list[Decided] = []
    for recorded in view.waiting(batch):
        for decided in _decisions(view, recorded):
            made.append(decided)
            payload = msgspec.convert(decided.data, EVENT_TYPES[decided.type].payload)
            event = msgspec.structs.replace(recorded.event, id=f"{recorded.event.id}/{decided.part}", type=decided.type)
            view.assume(Recorded(recorded.partition, view.position, event, payload))
    view.forget_provisional()
    return made


def memory_name(org: str, key: str, proposal: str) -> str:
    """The name of the memory that a proposal becomes: the same for whoever decides, another one for each scope."""
    return "m-" + blake2b("\x1f".join((org, key, proposal)).encode(), digest_size=10).hexdigest()


def _decisions(view: ScopeView, recorded: Recorded) -> list[Decided]:
    proposed, source = recorded.payload, recorded.event
    assert isinstance(proposed, MemoryProposed)
    level = source.key.partition("/")[0]
    common = {"kind": proposed.kind, "scope": level, "based_on": str(view.position)}
    stale = view.stale_of(source.id)
    again = f"/{stale}" if stale else ""
    verdict = decide(proposed, view)
    if isinstance(verdict, Rejected):
        data = {**common, "proposal": source.id, "reason": verdict.reason, "detail": verdict.detail,
                "duplicate_of": verdict.duplicate_of}  # fmt: skip
        return [Decided(source, f"decided{again}", "memory.rejected", data)]
    name = memory_name(source.org, source.key, source.id)
    made = [Decided(source, f"decided{again}", "memory.admitted", {**common, **_admission(verdict, name, source.id)})]
    for old, why in verdict.supersedes:
        data = {**common, "memory": old, "superseded_by": name, "reason": why}
        made.append(Decided(source, f"superseded/{old}{again}", "memory.superseded", data))
    return made


def _admission(candidate: Candidate, memory: str, proposal: str) -> dict[str, Any]:
    proposed = candidate.proposed
    taken = ("kind", "memory_type", "entity", "attribute", "confidence", "tags", "ttl_s", "source")
    return {
        **{name: value for name in taken if (value := getattr(proposed, name)) is not None},
        "memory": memory,
        "proposal": proposal,
        "content": candidate.content,
        "trust": candidate.trust,
        "score": candidate.score,
    }
