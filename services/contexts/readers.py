"""Where a context is read from: the read models as they are now, or the log as it was then.

Both give one function of a connection the same rows, so that one gathering serves both. The live reader notes how far
each key was folded; the past one folds the key again up to there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from events.archive import queries
from events.errors import Refused
from events.event import START, Position
from events.keys import partition_of
from events.tokens import read_token, write_token
from projections.engine.past import fold_past, in_memory
from projections.engine.store import read_letters
from projections.policy.selection import Learned
from projections.queries.card_sources import Flows, read_flows
from projections.queries.policy import learned_of
from projections.retrieval.query import CardQuery
from services.composition import Backend
from services.contexts.relevance import relevant
from services.curation.statements import gist
from services.embedding.comparing import MOST_COMPARED, Comparison
from services.policies.scopes import BELIEFS, PolicyScopes, judged_at
from services.searching.search import Searcher

T = TypeVar("T")

CARDS, STATE, SETTLEMENTS = "memory_cards", "task_state", "settlements"
MEMORIES = "memories"
LOG = "log"

MAX_EVENTS = 200_000
"""Longest history of a key that is folded to make a context again."""

MEANING_WAIT_S = 2.0
"""How long a context waits for a model that compares memories with its query; it may have to be loaded."""

Recalled = tuple[str, str]
"""(card, task) of a card that a query brought."""

Named = tuple[str, str]
"""(memory, scope) of a memory."""


class Reader(Protocol):
    """Reads for one org. ``positions``: ``model/key`` -> how far what was read of it reached.

    A key of a read model is read once for a context: a second look might see more.
    """

    org: str
    positions: dict[str, str]

    async def read(self, model: str, key: str, work: Callable[[Connection], T]) -> T:
        """``work`` on a read model that holds the key."""
        ...

    async def events(self, key: str, work: Callable[[Connection, Position], T]) -> T:
        """``work`` on the log, which is told how far it may look at the key."""
        ...

    def flows(self, conn: Connection, agent: str, asked: dict[str, Any]) -> Flows:
        """What was learned of an agent's tools; ``conn`` is one to the cards, within a read."""
        ...

    async def learned(self, scopes: Sequence[str], now: datetime) -> list[Learned]:
        """What scopes have learned, for the moment that beliefs are read for (``judged_at``)."""
        ...

    async def recall(self, query: CardQuery, task: str) -> list[Recalled]:
        """Cards of other tasks that a query brings, the best first."""
        ...

    async def brings(self, known: Sequence[dict[str, Any]], query: str) -> list[Named]:
        """Which of these memories a query brings, the best first."""
        ...


class LiveReader:
    """Reads the active generations, once they hold what is durable of the task (or what ``after`` names).

    Of memories they hold besides what is durable of their scope: one that does not hold any more is not told.
    """

    def __init__(
        self,
        backend: Backend,
        searcher: Searcher,
        comparison: Comparison,
        policies: PolicyScopes,
        org: str,
        after: str = "",
    ) -> None:
        self.org = org
        self.positions: dict[str, str] = {}
        self.notes: dict[str, bool] = {"reached": True, "stale": False}
        self._backend = backend
        self._searcher = searcher
        self._comparison = comparison
        self._policies = policies
        self._after = after

    async def read(self, model: str, key: str, work: Callable[[Connection], T]) -> T:
        """``Reader.read``."""
        partition = partition_of(self.org, key, self._backend.partitions)
        after = await self._after_changes(key, partition) if model == MEMORIES else self._after
        found = await self._backend.read_models.read(model, work, after, self._backend.settings.read_timeout_s)
        self.positions.setdefault(f"{model}/{key}", _written(found.positions.get(partition, START)))
        self.notes["reached"] &= found.reached
        self.notes["stale"] |= found.stale
        return found.value

    async def _after_changes(self, key: str, partition: int) -> str:
        """``after``, and the last that is durable of a key."""
        last = await self._backend.db.read(partial(queries.last_of_key, org=self.org, key=key))
        of_key = [] if last is None else [(partition, last.position)]
        return write_token([*read_token(self._after).items(), *of_key])

    async def events(self, key: str, work: Callable[[Connection, Position], T]) -> T:
        """``Reader.events``."""
        name = f"{LOG}/{key}"
        if name not in self.positions:
            last = await self._backend.db.read(partial(queries.last_of_key, org=self.org, key=key))
            self.positions[name] = _written(START if last is None else last.position)
        upto = _position(self.positions[name])
        return await self._backend.db.read(lambda conn: work(conn, upto))

    def flows(self, conn: Connection, agent: str, asked: dict[str, Any]) -> Flows:
        """``Reader.flows``."""
        return read_flows(conn, self.org, agent, asked)

    async def learned(self, scopes: Sequence[str], now: datetime) -> list[Learned]:
        """``Reader.learned``, as this process keeps it."""
        found = await self._policies.learned(self.org, scopes, now, self._after or None)
        for scope, position in zip(scopes, found.positions, strict=True):
            self.positions.setdefault(f"{BELIEFS}/{scope}", _written(position))
        self.notes["reached"] &= found.note["reached"]
        self.notes["stale"] |= found.note["stale"]
        return found.scopes

    async def recall(self, query: CardQuery, task: str) -> list[Recalled]:
        """``Reader.recall``."""
        found = await self._searcher.search(query)
        return [(item["card"], item["task"]) for item in found.items if item["task"] != task]

    async def brings(self, known: Sequence[dict[str, Any]], query: str) -> list[Named]:
        """``Reader.brings``: by words, and by meaning where a model tells that in time."""
        meaning: Mapping[int, float] = {}
        if query.strip() and known:
            with suppress(TimeoutError):
                async with asyncio.timeout(MEANING_WAIT_S):
                    said = [gist(one["content"]) for one in known[:MOST_COMPARED]]
                    meaning = (await self._comparison.compare(self.org, gist(query), said)).known
        found = await asyncio.to_thread(relevant, known, query, meaning)
        return [(one["memory"], one["scope"]) for one in found]


class PastReader:
    """Reads a recorded context's keys as they stood then."""

    def __init__(
        self,
        backend: Backend,
        org: str,
        positions: Mapping[str, str],
        flows: Flows,
        recalled: Sequence[Recalled],
        brought: Sequence[Named],
    ) -> None:
        self.org = org
        self.positions = dict(positions)
        self._backend = backend
        self._flows = flows
        self._recalled = list(recalled)
        self._brought = list(brought)

    async def read(self, model: str, key: str, work: Callable[[Connection], T]) -> T:
        """``Reader.read``. Raises Refused for too long a history, and for what the record does not name."""
        name = f"{model}/{key}"
        upto = self._position(name)
        letters = await self._backend.read_models.read(model, lambda conn: read_letters(conn, (self.org, key)))
        return await asyncio.to_thread(self._work, name, upto, letters.value, work)

    def _work(self, name: str, upto: Position, letters: Any, work: Callable[[Connection], T]) -> T:
        model, _, key = name.partition("/")
        count = self._backend.db.read_now(lambda conn: queries.count_key(conn, self.org, key, upto, MAX_EVENTS + 1))
        if count > MAX_EVENTS:
            raise Refused(f"{key} has more than {MAX_EVENTS:,} events up to {upto}, too many", code="too_long")
        past = fold_past(self._backend.projections[model], self._backend.db, (self.org, key), upto, letters)
        with in_memory(past) as conn:
            return work(conn)

    async def events(self, key: str, work: Callable[[Connection, Position], T]) -> T:
        """``Reader.events``."""
        upto = self._position(f"{LOG}/{key}")
        return await self._backend.db.read(lambda conn: work(conn, upto))

    def flows(self, conn: Connection, agent: str, asked: dict[str, Any]) -> Flows:
        """``Reader.flows``: as recorded."""
        return self._flows

    async def learned(self, scopes: Sequence[str], now: datetime) -> list[Learned]:
        """``Reader.learned``."""
        moment, rules = judged_at(now), self._backend.belief_rules
        return [
            await self.read(BELIEFS, scope, partial(learned_of, org=self.org, scope=scope, now=moment, rules=rules))
            for scope in scopes
        ]

    async def recall(self, query: CardQuery, task: str) -> list[Recalled]:
        """``Reader.recall``: as recorded."""
        return self._recalled

    async def brings(self, known: Sequence[dict[str, Any]], query: str) -> list[Named]:
        """``Reader.brings``: as recorded."""
        return self._brought

    def _position(self, name: str) -> Position:
        found = self.positions.get(name)
        if found is None:
            raise Refused(f"the record of this context does not say how far {name} was read", code="not_the_same")
        return _position(found)


def _written(position: Position) -> str:
    """A position as text; empty before the first event."""
    return "" if position == START else str(position)


def _position(text: str) -> Position:
    return Position.parse(text) if text else START
