"""Comparing all cards with all vectors: what the read model changed behind the indexer's back is found by it.

A key that was mended, or erased, has rows whose last change lies further back than the indexer has looked. A sweep
makes what is missing or damaged, and forgets the vectors of text that stands in no card any more.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from sqlalchemy import Connection, select

from events.archive.queries import read_watermarks
from events.database import Database
from projections.engine.tables import checkpoints
from projections.read_models import ReadModels
from projections.retrieval import models, vectors
from services.indexer import passages
from services.indexer.follower import CARDS, PAGE, Follower

SWEEP_S = 60.0
"""How long after a start, or a change of hands in the read model, a sweep follows: several come together."""

_log = logging.getLogger("refold.indexer")


class Sweeper:
    """Sweeps after a start, after each change of generation, and after others than its owners wrote a read model."""

    def __init__(self, read_models: ReadModels, db: Database, after_s: float = SWEEP_S) -> None:
        self._read_models = read_models
        self._db = db
        self._after_s = after_s
        self._hands: object = None
        self._due_s = time.monotonic() + after_s

    def is_due(self, hands: object) -> bool:
        """Whether it is time. ``hands`` is whatever tells one state of the read model's ownership from another."""
        if hands != self._hands:
            self._hands = hands
            self._due_s = min(self._due_s, time.monotonic() + self._after_s)
        return time.monotonic() >= self._due_s

    async def sweep(self, follower: Follower) -> bool:
        """Compare, make and forget. False: nothing is left to do."""
        marks = await self._db.read(read_watermarks)
        read = await self._read_models.read(CARDS, passages.orgs)
        if any(read.positions[p] < mark for p, mark in marks.items()):
            self._due_s = time.monotonic() + self._after_s  # what is not folded yet may be a card again
            return False
        orgs = {*read.value, *await self._db.read(vectors.orgs)}
        made, gone = follower.embedded, 0
        for org in sorted(orgs):
            gone += await self._org(follower, org, read.generation)
        self._due_s = float("inf")
        if gone or follower.embedded != made:
            _log.info("%d vectors were missing, %d of text that is gone", follower.embedded - made, gone)
        return False

    async def _org(self, follower: Follower, org: str, generation: str) -> int:
        """The number of vectors that were forgotten."""
        await self._db.write(partial(_without_damaged, org=org))
        known: set[str] = set()
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            work = partial(passages.of_org, org=org, after=after, limit=PAGE)
            read = await self._read_models.read(CARDS, work)
            if read.generation != generation:
                return 0  # half of what is known is of another time: the next sweep sees to it
            page, after = read.value
            await follower.serve(page)
            known |= page.known.get(org, set())

        def forget(conn: Connection) -> int:
            count = 0
            for model in models.list_all(conn):  # those that no search uses, too: what was erased is nowhere
                gone = vectors.hashes_of(conn, org, model.name) - known
                vectors.drop(conn, org, model.name, gone)
                count += len(gone)
            return count

        return await self._db.write(forget)


def _without_damaged(conn: Connection, org: str) -> None:
    for model in models.list_all(conn):
        vectors.drop_damaged(conn, org, model.name, model.dimension)


def hands(conn: Connection) -> tuple[int, ...]:
    """Who may write each partition of a read model, as numbers: one rises whenever somebody else does."""
    query = select(checkpoints.c.owner_epoch).order_by(checkpoints.c.partition)
    return tuple(conn.execute(query).scalars())
