"""What a model that embeds texts is, and the rows that any of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
"""``float32[n, dimension]``, a row a text."""

LONGEST_TEXT = 8_192
"""Characters of a text that a model reads; what follows them has no effect."""


class Embedder(Protocol):
    """A model in memory. ``name`` tells whose vectors may be compared: those of one name, and no others."""

    name: str
    dimension: int

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """A row a text: of length 1, or zero where the text has no meaning to the model (an empty one). Always finite.

        ``query``: they are questions, to models that tell those from passages. Raises Transient when the model cannot
        answer now.
        """
        ...


def unit_rows(raw: Any) -> Matrix:
    """Rows as ``Embedder.embed`` gives them: scaled to length 1; one that is not finite, or has no length, is zero."""
    rows = np.array(raw, dtype=np.float64, ndmin=2)
    rows[~np.isfinite(rows).all(axis=1)] = 0.0
    # the largest member first: squares of very large or small ones would leave the range of numbers
    peaks = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = np.divide(rows, peaks, out=np.zeros_like(rows), where=peaks > 0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return np.asarray(unit, dtype=np.float32)


def spread(texts: Sequence[str], embedded: Matrix, dimension: int) -> Matrix:
    """Rows for ``texts`` from the rows of those of them that are not blank, in their order."""
    rows = np.zeros((len(texts), dimension), dtype=np.float32)
    told = [index for index, text in enumerate(texts) if text.strip()]
    if told:
        rows[told] = embedded
    return rows


def readable(texts: Sequence[str]) -> list[str]:
    """The texts that are not blank, each as far as a model reads it."""
    return [text[:LONGEST_TEXT] for text in texts if text.strip()]
