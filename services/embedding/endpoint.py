"""A model behind an HTTP endpoint of the OpenAI form, ``POST <url>/embeddings``. For it, texts leave this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from events.errors import SetupError, Transient
from services.embedding.model import Matrix, readable, spread, unit_rows

TIMEOUT_S = 30.0
BATCH = 64
"""Texts of one request, at most."""

_PASSING = {408, 409, 425, 429}


class EndpointModel:
    """A served model as an ``Embedder``. Asks once for its dimension. ``key`` goes with each request, if any."""

    def __init__(self, name: str, model: str, url: str, key: str = "") -> None:
        self.name = name
        self._model = model
        self._url = f"{url.rstrip('/')}/embeddings"
        self._client = httpx.Client(timeout=TIMEOUT_S, headers={"Authorization": f"Bearer {key}"} if key else {})
        self.dimension = int(self._rows(["dimension"]).shape[1])

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        """See ``Embedder``. Queries and passages are asked for alike."""
        told = readable(texts)
        parts = [self._rows(told[start : start + BATCH]) for start in range(0, len(told), BATCH)]
        rows = np.concatenate(parts) if parts else np.zeros((0, self.dimension), dtype=np.float32)
        if rows.shape[1] != self.dimension:
            raise SetupError(f"{self._url} answered {rows.shape[1]} dimensions, before {self.dimension}: start again")
        return spread(texts, rows, self.dimension)

    def close(self) -> None:
        """Let its connections go."""
        self._client.close()

    @retry(
        retry=retry_if_exception_type(Transient), reraise=True,
        stop=stop_after_attempt(4), wait=wait_random_exponential(0.5, max=8),
    )  # fmt: skip
    def _rows(self, texts: list[str]) -> Matrix:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            answer = self._client.post(self._url, json=body)
        except httpx.TransportError as error:
            raise Transient(f"{self._url} does not answer: {type(error).__name__}") from error
        if answer.status_code in _PASSING or answer.status_code >= 500:
            raise Transient(f"{self._url} answered {answer.status_code}")
        if answer.status_code != 200:
            raise SetupError(
                f"{self._url} answered {answer.status_code} to the model {self._model!r}: "
                "correct REFOLD_EMBEDDING_MODEL, REFOLD_EMBEDDING_URL or REFOLD_EMBEDDING_KEY"
            )
        return _matrix(answer, len(texts), self._url)


def _matrix(answer: httpx.Response, wanted: int, url: str) -> Matrix:
    """The vectors of an answer, in the order of the texts. Raises SetupError where it is none of this form."""
    try:
        items: list[Any] = sorted(answer.json()["data"], key=lambda item: item["index"])
        rows = unit_rows([item["embedding"] for item in items])
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{url} answered something else than embeddings: is it an OpenAI-compatible URL?") from error
    if len(rows) != wanted:
        raise SetupError(f"{url} answered {len(rows)} vectors for {wanted} texts")
    return rows
