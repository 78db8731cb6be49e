"""One model on its way through the cards: what changed is looked at once, and what has no vector yet gets one.

Whatever is written is of use to whoever comes next, and written once: so the process may be killed at any moment, and
two that follow with one model do no harm. How far a partition is, is noted with the last vectors that it needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from sqlalchemy import Connection

from events.database import Database
from events.errors import SetupError, Transient
from events.event import START, Position
from projections.read_models import ReadModels
from projections.retrieval import models, vectors
from projections.retrieval.models import Reach
from services.embedding.model import Matrix
from services.embedding.process import Died, Loaded
from services.indexer import passages
from services.indexer.passages import Page

CARDS = "memory_cards"
PAGE = 256
"""Cards that are looked at together."""
LAST_TRIES = 3
"""How often a text is tried alone that a model's process dies of."""

_log = logging.getLogger("refold.indexer")


class Asked(Protocol):
    """A model that can be asked; ``ModelProcess`` is one."""

    async def load(self) -> Loaded:
        """Its name and dimension."""
        ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """A row a text."""
        ...

    async def close(self) -> None:
        """Let it go."""
        ...


class Follower:
    """Follows the cards with one model, known by ``name``. ``embedded`` counts the texts that the model was asked.

    ``source`` is kept with its vectors, so that others can load the same model. ``given_up`` is for whoever finds that
    it cannot be loaded.
    """

    def __init__(
        self, name: str, source: Mapping[str, str], model: Asked, read_models: ReadModels, db: Database, batch: int
    ) -> None:
        self.name = name
        self.embedded = 0
        self.given_up = False
        self._source = source
        self._model = model
        self._read_models = read_models
        self._db = db
        self._batch = batch
        self._reached: dict[int, Reach] | None = None

    async def behind(self, generation: str, positions: Mapping[int, Position]) -> list[int]:
        """The partitions that have been folded further than this model has looked."""
        reached = await self._known()
        return [p for p, position in positions.items() if reached.get(p) != Reach(generation, position)]

    async def recall(self) -> None:
        """Look up how far the partitions are: another process may have followed them meanwhile."""
        self._reached = None
        await self._known()

    async def advance(self, partition: int) -> bool:
        """Look at one page of a partition. True when nothing is left of it."""
        reached = await self._known()
        at = reached.get(partition, Reach("", START))
        work = partial(passages.changed_since, partition=partition, after=at.position, limit=PAGE)
        read = await self._read_models.read(CARDS, work)
        if read.generation != at.generation:
            # made anew, perhaps by other code: all of it is looked at, and most of it has its vectors
            reached[partition] = Reach(read.generation, START)
            return False
        page, last = read.value
        await self.serve(page)
        reached[partition] = Reach(read.generation, last or read.positions[partition])
        if page.cards:
            await self._db.write(partial(models.set_reached, name=self.name, reach={partition: reached[partition]}))
        return last is None

    async def serve(self, page: Page) -> None:
        """Make the vectors that a page of cards lacks."""
        for org, texts in page.wanted.items():
            lacking = await self._db.read(partial(vectors.missing, org=org, model=self.name, hashes=list(texts)))
            for hashes in _batches(lacking, self._batch):
                await self._embed(org, {one: texts[one] for one in hashes})

    async def _known(self) -> dict[int, Reach]:
        if self._reached is None:
            self._reached = await self._db.read(partial(models.reached, name=self.name))
        return self._reached

    async def _embed(self, org: str, texts: Mapping[str, str]) -> None:
        loaded = await self._model.load()
        if loaded.name != self.name:
            raise SetupError(f"the embedding model {self.name!r} is now {loaded.name!r}: start the indexer again")
        rows = await self._rows(list(texts.values()))
        self.embedded += len(texts)

        def keep(conn: Connection) -> bool:
            known = models.get(conn, self.name)
            useful = bool(vectors.usable(rows).any()) or models.is_useful(conn, self.name)
            models.register(conn, self.name, self._source, loaded.dimension, useful=useful)
            new = vectors.write(conn, org, self.name, list(texts), rows)
            models.count_written(conn, self.name, new)
            return known is not None and known.dimension != loaded.dimension

        if await self._db.write(keep):
            self._reached = None
            raise Transient(f"{self.name} now gives {loaded.dimension} numbers a text: everything is embedded anew")

    async def _rows(self, texts: Sequence[str], tries: int = LAST_TRIES) -> Matrix:
        """A row a text. One that the model's process dies of, alone and again, has no vector: it holds nothing up."""
        try:
            return await self._model.embed(texts)
        except Died:
            if len(texts) > 1:
                halves = (texts[: len(texts) // 2], texts[len(texts) // 2 :])
                return np.concatenate([await self._rows(half) for half in halves])
            if tries > 1:
                return await self._rows(texts, tries - 1)
        _log.warning(
            "the embedding model %s dies of a text of %d characters: it gets no vector", self.name, len(texts[0])
        )
        return np.zeros((1, (await self._model.load()).dimension), dtype=np.float32)


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
