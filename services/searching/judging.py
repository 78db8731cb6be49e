"""Asking a cross-encoder, in a process of its own."""

from __future__ import annotations

from services.embedding.choice import Choice
from services.embedding.cross_encoder import PREFIX, pair
from services.embedding.process import ModelProcess


class CrossEncoder:
    """Judges passages. Its process begins at the first question; ``close`` ends it."""

    def __init__(self, source: str) -> None:
        self._process = ModelProcess(Choice(PREFIX + source, form="framework"))

    async def judge(self, query: str, passages: list[str]) -> list[float]:
        """How well each passage answers the query, 0..1. Raises Transient or SetupError when it cannot tell."""
        rows = await self._process.embed([pair(query, passage) for passage in passages], query=True)
        return [float(row[0]) for row in rows]

    async def close(self) -> None:
        """End the process."""
        await self._process.close()
