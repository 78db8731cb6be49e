"""Scope indexes of this process: made at the first search of a scope, brought up to date by every one, bounded.

An index answers from exactly what its read model holds at that moment: every search first takes in whatever changed
since the one before. What is not searched for long gives its memory to others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from events.database import Database
from events.errors import Refused
from projections.read_models import Read, ReadModels
from projections.retrieval import models, vectors
from projections.retrieval.changes import Delta, changes, take_in
from projections.retrieval.query import Scope
from projections.retrieval.scope_index import ScopeIndex, Seen

CARDS = "memory_cards"


class Fresh(NamedTuple):
    """A scope as it is now, and what must be known of the read model behind it (``reading.Found.note``)."""

    cards: ScopeIndex
    note: dict[str, Any]


class _Place:
    """Where the index of a scope lives. Whoever holds the ``turn`` may change or read it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.index: ScopeIndex | None = None
        self.bytes = 0


class ScopeIndexes:
    """``max_bytes`` bounds all of them together, ``max_cards`` one scope: what is searched must fit into memory."""

    def __init__(
        self, read_models: ReadModels, log: Database, *, max_bytes: int, max_cards: int, timeout_s: float
    ) -> None:
        self._read_models = read_models
        self._log = log
        self._max_bytes = max_bytes
        self._max_cards = max_cards
        self._timeout_s = timeout_s
        self._places: OrderedDict[Scope, _Place] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Memory that all indexes take, roughly."""
        return sum(place.bytes for place in self._places.values())

    @asynccontextmanager
    async def fresh(self, scope: Scope, after: str | None) -> AsyncIterator[Fresh]:
        """The index of a scope, as its read model stands, for as long as the block lasts.

        Raises Refused for a scope of more cards than are searched at once, and what a read of the read model raises.
        """
        place = self._places.setdefault(scope, _Place())
        self._places.move_to_end(scope)
        async with place.turn:
            try:
                yield await self._refreshed(place, scope, after)
            finally:
                place.bytes = place.index.bytes if place.index is not None else 0
        self._make_room()

    async def _refreshed(self, place: _Place, scope: Scope, after: str | None) -> Fresh:
        index = place.index
        if index is not None and index.wasteful:
            index = None
        found = await self._changes(scope, index.seen if index is not None else {}, after)
        if index is None or index.generation != found.generation:
            if index is not None:  # what it has seen is of another generation
                found = await self._changes(scope, {}, after)
            index = ScopeIndex(found.generation)
        if len(index) + len(found.value.rows) > self._max_cards:
            raise Refused(
                f"the scope holds more than {self._max_cards:,} cards, which is as many as one search looks at: name a "
                "user, an agent, a session or a task, or raise REFOLD_SEARCH_MAX_CARDS",
                code="scope_too_large",
            )
        # at once: what a search that is given up has taken in need not be read again. Undated rows are, each time
        place.index = index if found.value.is_dated else None
        if found.value.rows or found.value.whole:
            await _to_the_end(partial(take_in, index, found.value))
        index.seen = found.value.seen
        await self._fetch_vectors(index, scope.org)
        note = {"generation": found.generation, "reached": found.reached, "stale": found.stale, "incomplete": False}
        return Fresh(index, note)

    async def _changes(self, scope: Scope, seen: Mapping[int, Seen], after: str | None) -> Read[Delta]:
        work = partial(changes, scope=scope, seen=seen)
        return await self._read_models.read(CARDS, work, after, self._timeout_s)

    async def _fetch_vectors(self, index: ScopeIndex, org: str) -> None:
        """The vectors that have been written since the last look, of the model that searches use now."""
        rows = index.vectors
        model = await self._log.read(models.active)
        if model is None:
            return
        rows.use_model(model.name, model.dimension)
        if rows.written == model.written:
            return
        if missing := rows.missing(index.columns().alive):
            found = await self._log.read(partial(vectors.read, org=org, model=model.name, hashes=missing))
            await _to_the_end(partial(rows.fill, *found))
        rows.written = model.written

    def _make_room(self) -> None:
        """Let go of what was used longest ago, but for the one used last, and for those in use."""
        left = self.bytes - self._max_bytes
        for scope in list(self._places)[:-1]:
            if left <= 0:
                return
            place = self._places[scope]
            if not place.turn.locked():
                left -= place.bytes
                del self._places[scope]


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run what changes an index in a thread; whoever is cancelled meanwhile still holds its turn until that is done."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
