"""The vectors of a scope's passages as one matrix, exact: a document's cosine is that of its best passage."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

_FIRST_ROWS = 64
_DIGITS = 6
"""Digits of a cosine that count: float32 has no more."""


class VectorRows:
    """Vectors of one model at a time; those of another are never compared with them, they take their place."""

    def __init__(self) -> None:
        self.model = ""
        self.written = -1
        self._hashes: list[tuple[str, ...]] = []
        self._waiting: dict[str, list[int]] = {}
        self._owners = array("I")
        self._matrix: Matrix = np.zeros((0, 0), dtype=np.float32)

    @property
    def bytes(self) -> int:
        """Memory it takes, roughly."""
        return int(self._matrix.nbytes) + 8 * len(self._owners) + 150 * sum(map(len, self._hashes))

    def add(self, hashes: Sequence[str]) -> None:
        """Take in the next document, by the content hashes of its passages."""
        number = len(self._hashes)
        self._hashes.append(tuple(hashes))
        for wanted in hashes:
            self._waiting.setdefault(wanted, []).append(number)
        self.written = -1

    def hashes_of(self, number: int) -> tuple[str, ...]:
        """Content hashes of a document's passages."""
        return self._hashes[number]

    def use_model(self, model: str, dimension: int) -> None:
        """Compare by this model's vectors from now on."""
        if (model, dimension) == (self.model, self._matrix.shape[1]):
            return
        self.model, self.written = model, -1
        self._owners = array("I")
        self._matrix = np.zeros((0, dimension), dtype=np.float32)
        self._waiting = {}
        for number, hashes in enumerate(self._hashes):
            for wanted in hashes:
                self._waiting.setdefault(wanted, []).append(number)

    def missing(self, alive: NDArray[np.bool_]) -> list[str]:
        """Content hashes of documents that are there, whose vectors are not."""
        return [wanted for wanted, owners in self._waiting.items() if any(alive[owner] for owner in owners)]

    def fill(self, hashes: Sequence[str], rows: Matrix) -> None:
        """Take in vectors of the model in use, ``float32[n, dimension]``; those of another dimension are left out."""
        if rows.shape[1] != self._matrix.shape[1]:
            return
        for wanted, row in zip(hashes, rows, strict=True):
            for owner in self._waiting.pop(wanted, ()):
                self._append(owner, row)

    def _append(self, owner: int, row: Matrix) -> None:
        used = len(self._owners)
        if used == len(self._matrix):
            grown = np.zeros((max(_FIRST_ROWS, used + used // 2), self._matrix.shape[1]), dtype=np.float32)
            grown[:used] = self._matrix
            self._matrix = grown
        self._matrix[used] = row
        self._owners.append(owner)

    def cosines(self, query: Matrix) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cosine of each document with a query ``float32[dimension]`` of length 1, and of which documents it is known.

        A query of another dimension, of no length, or with members that are no numbers is like no document.
        """
        size, used = len(self._hashes), len(self._owners)
        scores, known = np.zeros(size), np.zeros(size, dtype=np.bool_)
        if query.shape != self._matrix.shape[1:] or not np.isfinite(query).all() or not query.any():
            return scores, known
        owners = np.array(self._owners, dtype=np.int64)
        # not `@`: its threads wait for each other on a busy machine, and its last digits differ by a row's place
        found = np.round(np.einsum("ij,j->i", self._matrix[:used], query).astype(np.float64), _DIGITS)
        known[owners] = True
        scores[known] = -1.0
        np.maximum.at(scores, owners, found)
        return scores, known
