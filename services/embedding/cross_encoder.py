"""A cross-encoder of sentence-transformers behind the same port as an embedding model, so that it has a process, too.

A text is a pair, ``pair(query, passage)``, and its row has one number, 0..1: how well the passage answers the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

from events.errors import SetupError
from services.embedding import framework
from services.embedding.model import Matrix

PREFIX = "cross-encoder!"
"""Before the name of a cross-encoder where a model is named: ``cross-encoder!owner/name``, or a folder."""

_LONGEST_QUERY = 2_000
_BATCH = 16


def pair(query: str, passage: str) -> str:
    """A query and a passage as one text."""
    return orjson.dumps([query[:_LONGEST_QUERY], passage]).decode()


class CrossEncoderModel:
    """An ``Embedder`` of dimension 1; its rows are judgements and not of length 1."""

    dimension = 1

    def __init__(self, source: str) -> None:
        self.name = PREFIX + source
        from_hub = not Path(source).is_dir()
        library = framework.library(source, from_hub=from_hub)
        from torch.nn import Sigmoid

        try:
            self._model = library.CrossEncoder(source, local_files_only=not from_hub, device="cpu")
        except (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError) as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise SetupError(f"the cross-encoder {source!r} cannot be loaded: {said}") from error
        if self._model.num_labels != 1:
            raise SetupError(
                f"the cross-encoder {source!r} gives {self._model.num_labels} numbers a pair instead of one"
            )
        self._unit = Sigmoid()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """A row a pair. One that is not finite is 0."""
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        pairs = [tuple(orjson.loads(text)) for text in texts]
        raw = self._model.predict(pairs, batch_size=_BATCH, activation_fn=self._unit, show_progress_bar=False)
        return np.nan_to_num(np.asarray(raw, dtype=np.float32).reshape(len(texts), 1), posinf=0.0, neginf=0.0)
