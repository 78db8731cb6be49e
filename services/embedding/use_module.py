"""The default model as a module of sentence-transformers, as any other model of that library is put together.

Imports torch: only the process that embeds with it may import this.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules import InputModule

from services.embedding.use import DIMENSION, encoder


class UseModule(InputModule):  # type: ignore[misc]  # torch is not there to everybody who checks types
    """Text to sentence embedding in one module. The weights are numpy's: torch only carries what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = encoder()

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """The embeddings of the texts, which ``forward`` hands on."""
        texts = [prompt + text for text in inputs] if prompt else list(inputs)
        return {"sentence_embedding": torch.from_numpy(self._encode(texts))}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The features as they are."""
        return features

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Nothing to write: the weights are in their own package."""
