"""``/v1/embeddings``: which models have vectors, which one searches use, how far each is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from events.errors import Refused, Transient
from services.api.deps import BackendDep
from services.indexer.status import Stored, read_stored, read_waiting

router = APIRouter(tags=["embeddings"])


@router.get("/v1/embeddings")
async def list_(backend: BackendDep) -> dict[str, Any]:
    """Every model that has vectors, the active one first: that is the one that searches use.

    `waiting` are active cards that a model has still to look at; null while it cannot be told. `model` is the one that
    is set: another one that is active is used until this one has all vectors (`building`).
    """
    stored = await backend.db.read(read_stored)
    try:
        waiting: list[int] | list[None] = await read_waiting(backend.read_models, stored)
    except (Transient, Refused):  # no generation of cards, or no cards here
        waiting = [None] * len(stored)
    items = [_document(each, left) for each, left in zip(stored, waiting, strict=True)]
    return {"model": backend.settings.embedding_model, "items": items, "next_cursor": None}


def _document(stored: Stored, waiting: int | None) -> dict[str, Any]:
    model = stored.model
    left = None if model.state == "retired" else waiting
    return {
        "model": model.name, "state": model.state, "dimension": model.dimension, "vectors": stored.vectors,
        "waiting": left,
    }  # fmt: skip
