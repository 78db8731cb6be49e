"""The consolidator: memories that say the same, and one of them more, become one (DESIGN 6, 7).

``memory.admitted`` → ``memory.consolidated``, which names the position that it knew the scope up to: the fold takes no
notice of it where a source was changed or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from events.types.system import ScopeErased
from projections.bounds import short
from services.curation.consolidate import Merger, merger_with
from services.curation.decisions import memory_name
from services.curation.view import ScopeView
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.scopes import Scope, Scopes, follow

MOST = 5_000
"""Active memories of a scope beyond which nothing is consolidated: each would be compared with all."""


class Consolidator:
    """Consolidates; remembers scopes, so that each memory costs the scope's news and not its history."""

    def __init__(self) -> None:
        self._scopes = Scopes(Scope)

    async def react(self, reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        """Consolidate the memory that was admitted with one that it covers, or that covers it."""
        if isinstance(reaction.recorded.payload, ScopeErased):
            self._scopes.forget(reaction)
            return []
        scope = self._scopes.of(reaction)
        async with scope.turn:
            await follow(reaction, scope.view)
            return _consolidated(reaction, scope.view)


def _consolidated(reaction: Reaction, view: ScopeView) -> list[dict[str, Any]]:
    event, memories = reaction.event, view.memories()
    memory = memories.get(short(reaction.recorded.payload.memory))
    if memory is None or len(memories) > MOST:
        return []
    merger = merger_with(memory, view.sharing(memory))
    if merger is None or not _came_last(view, memory.memory, merger):
        return []
    sources = sorted((merger.fuller.memory, merger.covered.memory))
    data = {
        "memory": memory_name(event.org, event.key, "/".join(sources)),
        "sources": sources,
        "content": merger.fuller.content,
        "kind": merger.fuller.kind,
        "scope": event.key.partition("/")[0],
        "based_on": str(view.position),
    }
    return [reaction.derive("memory.consolidated", data, user=event.user, agent=event.agent)]


def _came_last(view: ScopeView, memory: str, merger: Merger) -> bool:
    """Of two memories, whoever changed last brings it up, so that it is brought up once."""
    rows = sorted((view.row(one.memory) for one in merger), key=lambda row: (row["epoch"], row["n"]))
    return bool(rows[-1]["memory"] == memory)


CONSOLIDATOR = Reactor(
    name="consolidator", handles=frozenset(("memory.admitted", "scope.erased")), react=Consolidator().react
)
