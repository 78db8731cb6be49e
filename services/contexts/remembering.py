"""The memories that a task is entitled to, its user's, its agent's and the org's, and which of them a query brings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from events.keys import scopes_of
from projections.context.remembered import PART, Remembered, always_told, remembered
from projections.queries.memories import memories_of
from services.contexts.readers import MEMORIES, Named, Reader
from services.contexts.request import ContextRequest
from services.curation.safety import hides, is_order, visible
from services.promotion.pieces import rules_that_say
from services.promotion.rulebook import Kept


class Remembrance(NamedTuple):
    """Memories of a context: those that are always told, what the query brought beside them, the best first, and the
    names of all that the query is about."""

    always: list[Remembered]
    brought: list[Remembered]
    relevant: list[Named]


async def remember(reader: Reader, request: ContextRequest, about: Mapping[str, Any], now: datetime) -> Remembrance:
    """What holds at that moment of the memories of a task.

    What reads like an instruction is data, whatever it was when it was admitted: it may have been edited since. What a
    rule of the same scope says, too, names that rule: a context that tells the rule need not say it twice.
    """
    if PART not in request.parts:
        return Remembrance([], [], [])
    known: list[dict[str, Any]] = []
    for scope in scopes_of(about):
        known += await reader.read(MEMORIES, scope, partial(memories_of, org=reader.org, scope=scope, now=now))
    always = always_told(known)
    named = await reader.brings(known, request.query) if "recalled" in request.parts else []
    shown = {(one.memory, one.scope) for one in always}
    by_name = {(one["memory"], one["scope"]): one for one in known}
    brought = [remembered(by_name[name]) for name in named if name in by_name and name not in shown]
    return Remembrance([judged(one) for one in always], [judged(one) for one in brought], named)


def judged(memory: Remembered) -> Remembered:
    """The memory with what only rules of the services can tell of it: whether it is data, and which rules say it."""
    if hides(memory.content) or is_order(visible(memory.content), memory.kind):
        return memory._replace(trust="data")
    ruled = rules_that_say(memory.memory, Kept(memory.content, memory.kind, ""))
    return memory._replace(ruled=tuple(ruled))
