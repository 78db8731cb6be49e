"""The curator: the only way into long-term memory (DESIGN 6).

``memory.proposed`` → ``memory.admitted``, ``memory.rejected`` with its reason, and ``memory.superseded`` for what the
new one contradicts. It decides on what the log says of the scope (``services.curation.view``), on everything that waits
there at once, and each decision names the position that it knew the scope up to: where something has changed meanwhile,
the fold takes no notice of it, and it is made again here. Likeness of meaning is asked of the embedding model, where
there is one; a decision, once made, is an event, so no replay asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from events.errors import RefoldError
from events.types.system import ScopeErased
from services.curation.decisions import BATCH, Decided, decide_all
from services.curation.statements import gist
from services.curation.view import ScopeView, unseen
from services.reactors.derived import derived_id
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.scopes import Scope, Scopes, follow

PATIENCE_S = 10.0
"""How long decisions may be on their way before they are made again, with the same ids."""
MOST_VECTORS = 2_000
"""Contents of a scope whose vectors are kept; beyond, words alone tell duplicates."""


class Curator:
    """Decides; remembers scopes, so that a decision costs their news and not their history."""

    def __init__(self) -> None:
        self._scopes = Scopes(Scope)

    async def react(self, reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
        """Decide what waits in the source's scope; nothing where it is decided already."""
        if isinstance(reaction.recorded.payload, ScopeErased):
            self._scopes.forget(reaction)
            return []
        scope, me = self._scopes.of(reaction), reaction.event.id
        async with scope.turn:
            if scope.sender not in ("", me) and monotonic() - scope.sent_at < PATIENCE_S:
                # the one that sends looks again before it ends, and until then no checkpoint passes it
                return []
            scope.sender = ""
            await follow(reaction, scope.view)
            if not scope.view.pending:
                return []
            await self._embed(reaction, scope.view)
            made = decide_all(scope.view)
            scope.sender, scope.sent_at = me, monotonic()
        # asked again once they are durable: some may be stale, and more may wait
        return Later(0.0, [_raw(decided) for decided in made])

    async def _embed(self, reaction: Reaction, view: ScopeView) -> None:
        """Have the vectors that this decision compares; without a model, or one that answers, words decide alone."""
        embed = reaction.outside.embed
        if embed is None or len(view.memories()) > MOST_VECTORS:
            return
        waiting = [recorded.payload.content.strip() for recorded in view.waiting(BATCH)]
        texts = unseen(view, waiting)
        if texts:
            with suppress(RefoldError):
                view.vectors.update(zip(texts, await embed([gist(text) for text in texts]), strict=True))


def _raw(decided: Decided) -> dict[str, Any]:
    """The event of a decision: its id follows from the proposal's, whichever reaction made it."""
    source = decided.source
    names = {name: getattr(source, name) for name in ("user", "agent", "session", "task", "run")}
    names["correlation"] = source.correlation or source.run
    return {
        "id": derived_id("curator", source, decided.part),
        "type": decided.type,
        "source": "refold/curator",
        "time": source.time,
        "org": source.org,
        "causation": source.id,
        "data": decided.data,
        **{name: value for name, value in names.items() if value},
    }


CURATOR = Reactor(
    name="curator",
    handles=frozenset(("memory.proposed", "memory.admitted", "memory.rejected", "scope.erased")),
    react=Curator().react,
    from_start=True,
)
