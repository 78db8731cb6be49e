"""Vectors of queries, from the model whose vectors searches use: asked in a process of its own, and remembered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from events.database import Database
from events.errors import RefoldError, SetupError, Transient
from projections.retrieval import models
from projections.retrieval.models import Model
from services.embedding.choice import Choice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from services.embedding.process import ModelProcess

LONGEST_QUERY = 2_000
"""Characters of a query that are embedded: what follows would cost more time than it tells."""
REMEMBERED = 256
"""Queries whose vectors are kept: pages of one search, and an agent that asks again."""
RETRY_S = 60.0
"""How long a model that cannot be loaded is not tried again."""

_log = logging.getLogger("refold.embedding")


class QueryVector(NamedTuple):
    """What a search compares with: ``float32[dimension]`` of length 1, for the vectors of ``model`` alone.

    ``vector`` is None where there is none, and ``why`` then says it: a search does without, and tells its reader.
    """

    model: str
    vector: NDArray[np.float32] | None
    why: str = ""


class Embeddings:
    """Embeds queries. ``close`` it in the end."""

    def __init__(self, choice: Choice, db: Database) -> None:
        self._choice = choice
        self._db = db
        self._process: tuple[str, ModelProcess] | None = None
        self._switching = asyncio.Lock()
        self._seen: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        self._failed: tuple[str, float, str] = ("", 0.0, "")
        self._wanted: Model | None = None

    async def of_query(self, text: str) -> QueryVector:
        """The vector of a query. Raises Transient when the store cannot be asked for the active model."""
        if self._choice.off:
            return QueryVector("", None, "embeddings are switched off (REFOLD_EMBEDDING_MODEL=none)")
        model = await self._db.read(models.active)
        if model is None:
            return QueryVector("", None, "no vectors have been made yet")
        wanted = text[:LONGEST_QUERY].strip()
        if not wanted:
            return QueryVector(model.name, None, "the query is empty")
        key = (model.name, wanted)
        if key not in self._seen:
            try:
                vector = (await self.rows(model, [wanted], query=True))[0]
            except Transient as error:
                return QueryVector(model.name, None, f"the query could not be embedded: {error}")
            if not vector.any():
                return QueryVector(model.name, None, "the query says nothing to the embedding model")
            self._seen[key] = vector
        self._seen.move_to_end(key)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return QueryVector(model.name, self._seen[key])

    async def model(self) -> Model | None:
        """The model to compare texts by: that of searches, else the one that is wanted; None where there is none."""
        if self._choice.off:
            return None
        active = await self._db.read(models.active)
        if active is None and self._wanted is None:
            name = await asyncio.to_thread(lambda: self._choice.name)
            self._wanted = Model(name, self._choice.source, 0, "wanted", 0)
        return active or self._wanted

    async def rows(self, model: Model, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """A row a text, ``float32[n, dimension]``, of length 1 or zeros. Raises Transient, saying why, without them."""
        failed, since, why = self._failed
        if failed == model.name and time.monotonic() - since < RETRY_S:
            raise Transient(why)
        try:
            return await self._embed(model, texts, query=query)
        except RefoldError as error:
            if isinstance(error, SetupError):
                self._failed = (model.name, time.monotonic(), str(error))
            _log.warning("%s", error)
            raise Transient(str(error)) from error

    async def warm(self) -> None:
        """Have the model of searches in memory before anybody asks. Never raises: who asks is told what is wrong."""
        with suppress(Transient):
            if not self._choice.off and (model := await self._db.read(models.active)) is not None:
                await self.rows(model, ["a first word"], query=True)

    async def close(self) -> None:
        """End the process that embeds."""
        if self._process is not None:
            await self._process[1].close()

    async def _embed(self, model: Model, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        async with self._switching:
            if self._process is None or self._process[0] != model.name:
                await self.close()
                # here, since numpy takes its time: every process has one of these, and few embed
                from services.embedding.process import ModelProcess

                # the same vectors as within the framework, at a tenth of the memory
                self._process = (model.name, ModelProcess(Choice(**model.source, form="light")))
            process = self._process[1]
        loaded = await process.load()
        if loaded != (model.name, model.dimension or loaded.dimension):
            raise SetupError(
                f"the embedding model {model.name!r} is now {loaded.name!r} with {loaded.dimension} numbers"
            )
        return await process.embed(texts, query=query)
