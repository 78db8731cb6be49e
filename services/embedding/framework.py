"""Models of sentence-transformers: the default one in the framework's form, a folder, a model of the hub by its name.

The library, and torch, are imported when a model is loaded (4 to 12 seconds), on one thread. Nothing is downloaded
unless a model of the hub was named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from events.errors import SetupError
from services.embedding.choice import DEFAULT
from services.embedding.model import Matrix, readable, spread, unit_rows

HOW = "`make setup EXTRAS=[embeddings]`, or pip install 'refold[embeddings]'"
BATCH = 32
"""Texts that the model computes at once."""


class FrameworkModel:
    """A ``SentenceTransformer`` as an ``Embedder``."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self._model = model
        self.dimension = int(model.get_embedding_dimension() or np.shape(self._rows(["dimension"], query=False))[1])

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """See ``Embedder``. ``query``: with the prompt that the model wants before queries, where it has one."""
        told = readable(texts)
        rows = unit_rows(self._rows(told, query)) if told else np.zeros((0, self.dimension), dtype=np.float32)
        return spread(texts, rows, self.dimension)

    def _rows(self, texts: list[str], query: bool) -> Any:
        encode = self._model.encode_query if query else self._model.encode_document
        return encode(texts, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)


def is_installed() -> bool:
    """Whether sentence-transformers and torch are there; imports neither."""
    return find_spec("sentence_transformers") is not None and find_spec("torch") is not None


def framework_use() -> FrameworkModel:
    """The default model in the framework's form. Raises SetupError where the framework is not installed."""
    found = library(DEFAULT, from_hub=False)
    from services.embedding.use_module import UseModule

    return FrameworkModel(DEFAULT, found.SentenceTransformer(modules=[UseModule()], device="cpu"))


def framework_model(name: str, source: str, *, from_hub: bool) -> FrameworkModel:
    """A model from a folder, or of the hub by its name. Raises SetupError where it cannot be loaded."""
    found = library(source, from_hub=from_hub)
    try:
        model = found.SentenceTransformer(source, local_files_only=not from_hub, trust_remote_code=False)
        return FrameworkModel(name, model)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise SetupError(f"the embedding model {source!r} cannot be loaded: {said}") from error


def library(wanted: str, *, from_hub: bool) -> Any:
    """sentence-transformers, told to ask nobody else for anything, but the hub where it was named."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not from_hub:
        os.environ["HF_HUB_OFFLINE"] = "1"
    if not is_installed():
        raise SetupError(f"the embedding model {wanted!r} needs sentence-transformers: {HOW}")
    import sentence_transformers
    import torch

    torch.set_num_threads(1)
    return sentence_transformers
