"""Vectors of passages, by organisation, content hash and model: made once, beside the read models, kept by rebuilds.

Stored as little-endian float32, the same on both stores. Vectors of one model have one dimension, the one that the
registry (``models.py``) holds for it; those of different models are never given out together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, or_, select

from events.archive.schema import embedding_models, vectors
from events.bulk import bulk_delete, bulk_insert_new, bulk_select

Matrix = NDArray[np.float32]

_FORMAT = np.dtype("<f4")
_KEY = ("model", "org", "hash")


def missing(conn: Connection, org: str, model: str, hashes: Sequence[str]) -> list[str]:
    """The ``hashes`` that a model has not been asked about, each once, in their order."""
    there = {found for (found,) in bulk_select(conn, vectors, ("hash",), _KEY, _keys(org, model, hashes))}
    return [wanted for wanted in dict.fromkeys(hashes) if wanted not in there]


def write(conn: Connection, org: str, model: str, hashes: Sequence[str], rows: Matrix) -> int:
    """Keep the vectors of ``hashes``, ``float32[n, dimension]``; how many of them are new.

    Of a row that is zero or not finite it is kept that the model has nothing to say, so that it is not asked again.
    """
    whole = usable(rows)
    stored = rows.astype(_FORMAT, copy=False)
    new = {
        (model, org, wanted): (int(rows.shape[1]), stored[index].tobytes()) if whole[index] else (0, b"")
        for index, wanted in enumerate(hashes)
    }
    values = [(*key, *kept) for key, kept in sorted(new.items())]
    return bulk_insert_new(conn, vectors, (*_KEY, "dimension", "vector"), values)


def read(conn: Connection, org: str, model: str, hashes: Sequence[str]) -> tuple[list[str], Matrix]:
    """The vectors of ``hashes`` that there are, with their hashes, row by row: each once, in the order of ``hashes``.

    ``float32[n, dimension]``, rows of length 1. Those of another dimension than the model's are left out, and those
    that the store does not hold as they were written.
    """
    known = select(embedding_models.c.dimension).where(embedding_models.c.model == model)
    dimension = int(conn.execute(known).scalar() or 0)
    if not dimension:
        return [], np.zeros((0, 0), dtype=np.float32)
    columns, keys = ("hash", "dimension", "vector"), _keys(org, model, hashes)
    there: dict[str, Any] = {
        found: vector
        for found, size, vector in bulk_select(conn, vectors, columns, _KEY, keys)
        if size == dimension and len(vector) == dimension * _FORMAT.itemsize
    }
    found = [wanted for wanted in dict.fromkeys(hashes) if wanted in there]
    matrix = np.frombuffer(b"".join(there[wanted] for wanted in found), dtype=_FORMAT)
    rows = matrix.reshape(len(found), dimension).astype(np.float32, copy=False)
    whole = usable(rows)
    return [one for one, is_whole in zip(found, whole, strict=True) if is_whole], rows[whole]


def usable(rows: Matrix) -> NDArray[np.bool_]:
    """Which rows can be compared with anything: neither zero nor of members that are no numbers."""
    return np.logical_and(np.isfinite(rows).all(axis=1), rows.any(axis=1))


def orgs(conn: Connection) -> list[str]:
    """The organisations that have vectors, of whichever model."""
    return list(conn.execute(select(vectors.c.org).distinct()).scalars())


def hashes_of(conn: Connection, org: str, model: str) -> set[str]:
    """Every content hash that a model has been asked about, in one organisation."""
    where = (vectors.c.model == model, vectors.c.org == org)
    return set(conn.execute(select(vectors.c.hash).where(*where)).scalars())


def drop(conn: Connection, org: str, model: str, hashes: Iterable[str]) -> None:
    """Forget vectors, of text that is no longer there."""
    bulk_delete(conn, vectors, _KEY, [(model, org, gone) for gone in sorted(set(hashes))])


def drop_damaged(conn: Connection, org: str, model: str, dimension: int) -> int:
    """Forget the vectors of a model that are not as long as they must be, so that they are made anew; how many."""
    wrong = or_(vectors.c.dimension != dimension, func.length(vectors.c.vector) != dimension * _FORMAT.itemsize)
    where = (vectors.c.model == model, vectors.c.org == org, vectors.c.dimension != 0, wrong)
    return int(conn.execute(delete(vectors).where(*where)).rowcount)


def count(conn: Connection, model: str) -> int:
    """How many texts a model has been asked about."""
    return int(conn.execute(select(func.count()).select_from(vectors).where(vectors.c.model == model)).scalar_one())


def _keys(org: str, model: str, hashes: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(model, org, wanted) for wanted in dict.fromkeys(hashes)]
