"""The event that a context leaves, and what it says: enough to make the context again, without its text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from events.errors import Refused
from events.event import Position
from events.keys import members_of
from events.times import written
from events.types.system import ContextAssembled
from projections.bounds import digest
from projections.context.assembly import Assembled
from projections.context.expecting import Expected
from projections.policy.selection import Rule
from projections.policy.text import told_in
from projections.queries.card_sources import Flows
from services.contexts.gathering import Gathered
from services.contexts.readers import Named, Recalled
from services.contexts.request import ContextRequest

MAX_LEFT_OUT = 200
"""Cards that a record says were left out, at most."""


_LARGEST = 1 << 63


class Record(NamedTuple):
    """What was recorded of a context."""

    request: ContextRequest
    now: datetime
    positions: Mapping[str, str]
    flows: Flows
    recalled: list[Recalled]
    brought: list[Named]
    digest: str


def raw_event(
    context: str,
    request: ContextRequest,
    now: datetime,
    positions: Mapping[str, str],
    gathered: Gathered,
    made: Assembled,
) -> dict[str, Any]:
    """The event for the door. It names no run: an attempt that is over may still be looked at."""
    flows = gathered.flows
    return {
        "id": context,
        "type": "context.assembled",
        "source": "refold/context",
        "time": written(now),
        "task": request.task,
        "data": {
            "context": context,
            "now": written(now),
            "positions": dict(positions),
            "chosen": list(made.told),
            "left_out": list(made.left_out[:MAX_LEFT_OUT]),
            "query": request.query,
            "tokens": made.tokens,
            "digest": made.digest,
            "request": request.document(),
            "expected": [[*place, chance] for place, chance in sorted(flows.expected.chances.items())],
            "calls": flows.expected.calls,
            "parameters": sorted(flows.parameters),
            "recalled": [list(name) for name in reversed(gathered.recalled)],
            "policy": [[rule.document["scope"], rule.document["belief"]] for rule in _rules(gathered, made)],
            "brought": [[one.memory, one.scope] for one in gathered.remembered.brought],
            "memories": [[one.memory, one.scope] for one in made.memories],
        },
    }


def _rules(gathered: Gathered, made: Assembled) -> list[Rule]:
    """The rules that the context tells: what had no room taught nobody."""
    text = next((part.text for part in made.parts if part.name == "policy"), "")
    return told_in(gathered.material.policy, text)


def recalls(context: str, now: datetime, gathered: Gathered, made: Assembled) -> list[dict[str, Any]]:
    """An event a scope that counts as recalled the memories that the query is about and the context tells.

    Those that are told without being asked for do not count: being shown each time would keep them for ever. The ids
    follow from the context's, so it counts once.
    """
    told = {(one.memory, one.scope) for one in made.memories}
    hits = [name for name in gathered.remembered.relevant if name in told]
    return [
        {
            "id": f"recalled-{digest(f'{context}/{scope}')}",
            "type": "memory.recalled",
            "source": "refold/context",
            "time": written(now),
            "correlation": context,
            **members_of(scope),
            "data": {"memories": [memory for memory, of in hits if of == scope], "scope": scope.partition("/")[0]},
        }
        for scope in dict.fromkeys(scope for _, scope in hits)
    ]


def record_of(payload: ContextAssembled) -> Record | None:
    """What an event recorded; None for one that holds too little to make its context again.

    Whoever may publish may have written it: anything but a record of ours is Refused (code ``not_the_same``).
    """
    if not payload.request or not payload.digest:
        return None
    try:
        return _record(payload)
    except (msgspec.ValidationError, ValueError, OverflowError, Refused) as error:
        message = (
            f"what was recorded of context {payload.context!r:.200} is no record that Refold wrote: {error!r:.200}"
        )
        raise Refused(message, code="not_the_same") from error


def _record(payload: ContextAssembled) -> Record:
    chances = {(tool, field): chance for tool, field, chance in payload.expected}
    for place in filter(None, payload.positions.values()):
        if max(Position.parse(place)) >= _LARGEST:
            raise ValueError(f"there is no position {place}")
    return Record(
        ContextRequest.of_document(payload.request),
        datetime.fromisoformat(payload.now).astimezone(UTC),
        payload.positions,
        Flows(Expected(chances, payload.calls), frozenset(payload.parameters)),
        [(card, task) for card, task in payload.recalled],
        [(memory, scope) for memory, scope in payload.brought],
        payload.digest,
    )
