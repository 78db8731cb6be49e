"""What is embedded, by which model, and how much is left to do: for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from projections.read_models import ReadModels
from projections.retrieval import models, vectors
from projections.retrieval.models import Model, Reach
from services.indexer.follower import CARDS
from services.indexer.passages import waiting


class Stored(NamedTuple):
    """A model with its vectors, and how far it is in each partition.

    ``vectors`` counts the texts that it was asked about; ``useful``: of any of them it gave one.
    """

    model: Model
    vectors: int
    reached: dict[int, Reach]
    useful: bool

    @property
    def in_vain(self) -> bool:
        """Whether it was asked, and never gave a vector that can be compared."""
        return self.vectors > 0 and not self.useful


def read_stored(conn: Connection) -> list[Stored]:
    """Every model that has vectors, from the log store: the active one first."""
    return [
        Stored(
            model,
            vectors.count(conn, model.name),
            models.reached(conn, model.name),
            models.is_useful(conn, model.name),
        )
        for model in models.list_all(conn)
    ]


async def read_waiting(read_models: ReadModels, stored: Sequence[Stored]) -> list[int]:
    """Active cards that each model has still to look at, those that have their vectors already among them.

    Raises Transient while cards have no generation, Refused where no cards are kept.
    """
    generation = (await read_models.read(CARDS, lambda conn: None)).generation

    def work(conn: Connection) -> list[int]:
        return [waiting(conn, generation, each.reached) for each in stored]

    return (await read_models.read(CARDS, work)).value
