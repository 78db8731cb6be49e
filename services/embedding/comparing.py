"""How like in meaning texts are to a query: for what is searched seldom, and kept in nobody's index.

Vectors are looked for in memory, then among those that the log store keeps, then made: ``MOST_NEW`` a search at most,
so that none waits for long, the first texts first. What has no vector yet is compared by its words alone, and by its
meaning in a later search. They are kept in memory only, ``KEPT`` of them: what is erased leaves nothing behind. The
indexer does not follow these texts as it follows cards: rows of experiences hold no log position to go on from, and a
sweep forgets what stands in no card.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from events.database import Database
from events.errors import Transient
from projections.retrieval import vectors
from projections.retrieval.models import Model
from projections.retrieval.text import content_hash
from services.embedding.model import Matrix
from services.embedding.queries import LONGEST_QUERY

MOST_COMPARED = 2_000
"""Texts that one search compares by their meaning: the first."""
MOST_NEW = 256
"""Texts that one search has vectors made of: a fifth of a second for the model that comes along."""
KEPT = 20_000
"""Vectors in memory: 40 MB for the model that comes along."""
WAIT_S = 10.0
"""How long a search waits for vectors, which may have a model to load; then words alone must do."""

Vector = NDArray[np.float32]
_log = logging.getLogger("refold.embedding")


class Asked(Protocol):
    """What makes vectors; ``Embeddings`` is one."""

    async def model(self) -> Model | None:
        """The model to compare by; None: there is none."""
        ...

    async def rows(self, model: Model, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """A row a text. Raises Transient where they cannot be had."""
        ...


class Compared(NamedTuple):
    """``cosines``: ``float64[n]`` of the query and each text, NaN where that cannot be told.

    None where it can be told of none, and ``why`` then says the reason; else ``model`` is whose vectors were compared.
    """

    cosines: NDArray[np.float64] | None
    model: str = ""
    why: str = ""

    @property
    def known(self) -> dict[int, float]:
        """The cosines that can be told, by the place of the text."""
        return {} if self.cosines is None else {n: float(c) for n, c in enumerate(self.cosines) if not np.isnan(c)}


class Comparison:
    """Compares texts with queries; one a process, which all who search share."""

    def __init__(self, embeddings: Asked, db: Database) -> None:
        self._embeddings = embeddings
        self._db = db
        self._kept: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    async def compare(self, org: str, query: str, texts: Sequence[str]) -> Compared:
        """The likeness of each text. Never raises for want of a model: words must do then."""
        wanted = query[:LONGEST_QUERY].strip()
        if not wanted or not texts:
            return Compared(None, "", "there is nothing to compare")
        try:
            async with asyncio.timeout(WAIT_S):
                model = await self._embeddings.model()
                if model is None:
                    return Compared(None, "", "embeddings are switched off (REFOLD_EMBEDDING_MODEL=none)")
                return await self._compared(model, org, wanted, texts)
        except (Transient, TimeoutError) as error:
            why = str(error) or f"no vectors within {WAIT_S:g} s"
            _log.info("texts were compared by their words: %s", why)
            return Compared(None, "", why)

    async def _compared(self, model: Model, org: str, query: str, texts: Sequence[str]) -> Compared:
        asked = await self._vector(model, query)
        hashes = [content_hash(text) for text in texts[:MOST_COMPARED]]
        await self._look_up(model, org, hashes)
        await self._make(model, dict(zip(hashes, texts, strict=False)))
        cosines = np.full(len(texts), np.nan)
        for number, found in enumerate(hashes):
            vector = self._kept.get((model.name, found))
            if vector is not None and vector.any():
                cosines[number] = float(vector @ asked)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return Compared(cosines, model.name)

    async def _vector(self, model: Model, query: str) -> Vector:
        key = (model.name, f"?{query}")
        if key not in self._kept:
            self._kept[key] = (await self._embeddings.rows(model, [query], query=True))[0]
        self._kept.move_to_end(key)
        return self._kept[key]

    async def _look_up(self, model: Model, org: str, hashes: Sequence[str]) -> None:
        for found in hashes:
            if (model.name, found) in self._kept:
                self._kept.move_to_end((model.name, found))
        lacking = self._lacking(model, hashes)
        if lacking:
            found_hashes, rows = await self._db.read(partial(vectors.read, org=org, model=model.name, hashes=lacking))
            self._keep(model, found_hashes, rows)

    async def _make(self, model: Model, texts: dict[str, str]) -> None:
        lacking = self._lacking(model, list(texts))[:MOST_NEW]
        if lacking:
            rows = await self._embeddings.rows(model, [texts[one] for one in lacking])
            self._keep(model, lacking, rows)

    def _lacking(self, model: Model, hashes: Sequence[str]) -> list[str]:
        return [one for one in dict.fromkeys(hashes) if (model.name, one) not in self._kept]

    def _keep(self, model: Model, hashes: Sequence[str], rows: Matrix) -> None:
        self._kept.update(((model.name, one), row) for one, row in zip(hashes, rows, strict=True))
