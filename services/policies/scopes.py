"""What scopes have learned, kept ready in this process: read when a scope has changed, or after a while; bounded.

Reading ten thousand beliefs takes a thousand times as long as choosing among them. So a scope is kept as it was read,
and read again once its generation is another, once somebody has mended its rows (the owner epoch tells), once the
archive holds an event of its key beyond the position it was read at, and every ``FRESH_S``, since confidence decays.
Scopes share nothing: the key is (org, scope). What a scope says at a moment (``judged_at``) follows from its events
alone, whether it was kept or is folded from the log anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select

from events.archive.queries import last_of_key
from events.database import Database
from events.event import Position
from events.keys import partition_of
from projections.engine import tables
from projections.engine.checkpoints import read_position
from projections.policy.selection import Learned
from projections.queries.confidence import DEFAULT_RULES, BeliefRules
from projections.queries.policy import learned_of
from projections.read_models import ReadModels

BELIEFS = "beliefs"

FRESH_S = 600
"""How long what was read may be used while nothing happens in its scope: confidence decays by the day."""

MAX_KEPT = 50_000
"""Beliefs and notices that are kept, of all scopes together; a scope counts for ``SCOPE`` more."""
SCOPE = 8

Stamp = tuple[Position, int]
"""Checkpoint and owner epoch of a partition."""


def judged_at(now: datetime) -> datetime:
    """The moment for which beliefs are read: the end of the ``FRESH_S`` that ``now`` lies in.

    So all who ask meanwhile are told the same, and what is dated by a clock a little ahead counts at once.
    """
    seconds = now.astimezone(UTC).timestamp()
    return datetime.fromtimestamp(ceil(seconds / FRESH_S) * FRESH_S, UTC)


# made once: building a statement costs more than running it
_STAMPS = select(*(tables.checkpoints.c[name] for name in ("partition", "epoch", "n", "owner_epoch")))
_PARKED = tables.parked_keys.c
_LACKING = select(_PARKED.key).where(
    _PARKED.org == bindparam("of_org"), _PARKED.key.in_(bindparam("scopes", expanding=True))
).limit(1)  # fmt: skip


@dataclass(frozen=True)
class _Kept:
    """A scope as it stood at ``stamp``, for the moment ``at``."""

    learned: Learned
    generation: str
    stamp: Stamp
    at: datetime

    @property
    def size(self) -> int:
        return SCOPE + len(self.learned.held) + len(self.learned.notices)


@dataclass
class _Place:
    """Where a scope is kept. Whoever holds the ``turn`` reads it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    kept: _Kept | None = None


class Found(NamedTuple):
    """Scopes in the order they were asked for, each with how far it was read, and what must be known of the read model
    behind them.
    """

    scopes: list[Learned]
    positions: list[Position]
    note: dict[str, Any]


class PolicyScopes:
    """Scopes of one process. Several requests for one scope read it once."""

    def __init__(
        self,
        read_models: ReadModels,
        log: Database,
        partitions: int,
        rules: BeliefRules = DEFAULT_RULES,
        *,
        timeout_s: float = 5.0,
        max_kept: int = MAX_KEPT,
    ) -> None:
        self._read_models = read_models
        self._log = log
        self._partitions = partitions
        self._rules = rules
        self._timeout_s = timeout_s
        self._max_kept = max_kept
        self._places: OrderedDict[tuple[str, str], _Place] = OrderedDict()
        self.kept = 0
        """Beliefs and notices that are kept now, and ``SCOPE`` for each scope."""
        self.reads = 0
        """How often a scope was read."""

    async def learned(self, org: str, scopes: Sequence[str], now: datetime, after: str | None = None) -> Found:
        """What scopes have learned by a moment (``judged_at``), each at least up to the position token ``after``.

        Raises what a read of the read model raises (``ReadModels.read``).
        """
        look = partial(_look, org=org, scopes=scopes)
        found = await self._read_models.read(BELIEFS, look, after, self._timeout_s)
        stamps, incomplete = found.value
        moment = judged_at(now)
        kept = [
            await self._kept(org, scope, found.generation, stamps[self._partition(org, scope)], moment)
            for scope in scopes
        ]
        self._make_room()
        note = {"generation": found.generation, "reached": found.reached, "stale": found.stale}
        positions = [one.stamp[0] for one in kept]
        return Found([one.learned for one in kept], positions, {**note, "incomplete": incomplete})

    async def _kept(self, org: str, scope: str, generation: str, stamp: Stamp, moment: datetime) -> _Kept:
        place = self._places.setdefault((org, scope), _Place())
        self._places.move_to_end((org, scope))
        async with place.turn:
            kept = place.kept
            if kept is None or not await self._holds(kept, org, scope, generation, stamp, moment):
                before, kept = kept, await self._read(org, scope, moment)
                place.kept = kept
                self.kept += kept.size - (before.size if before is not None else 0)
            elif kept.stamp < stamp:
                place.kept = kept = replace(kept, stamp=stamp)
        return kept

    async def _holds(self, kept: _Kept, org: str, scope: str, generation: str, stamp: Stamp, moment: datetime) -> bool:
        """Whether a scope as it is kept says what its rows say at ``stamp``, or later."""
        position, owner_epoch = kept.stamp
        if kept.generation != generation or owner_epoch != stamp[1] or kept.at != moment:
            return False
        if position >= stamp[0]:
            return True
        last = await self._log.read(partial(last_of_key, org=org, key=scope))
        return last is None or last.position <= position

    async def _read(self, org: str, scope: str, moment: datetime) -> _Kept:
        def work(conn: Connection) -> tuple[Stamp, Learned]:
            stamp = read_position(conn, self._partition(org, scope))
            return stamp, learned_of(conn, org, scope, now=moment, rules=self._rules)

        self.reads += 1
        found = await self._read_models.read(BELIEFS, work)
        stamp, learned = found.value
        return _Kept(learned, found.generation, stamp, moment)

    def _partition(self, org: str, scope: str) -> int:
        return partition_of(org, scope, self._partitions)

    def _make_room(self) -> None:
        """Let go of what was used longest ago, but for what is being read."""
        for name in list(self._places):
            if self.kept <= self._max_kept:
                return
            place = self._places[name]
            if not place.turn.locked():
                self.kept -= place.kept.size if place.kept is not None else 0
                del self._places[name]


def _look(conn: Connection, org: str, scopes: Sequence[str]) -> tuple[dict[int, Stamp], bool]:
    """How far the rows of each partition are; whether a scope lacks an event that could not be folded."""
    stamps = {p: (Position(epoch, n), owner) for p, epoch, n, owner in conn.execute(_STAMPS)}
    return stamps, conn.execute(_LACKING, {"of_org": org, "scopes": list(scopes)}).first() is not None
