"""What a process that embeds and the one that asks it say to each other, over pipes: frames of a length and a body.

First it tells ``{"name", "dimension"}``. Then each question ``{"texts", "query"}`` is answered by ``{"rows"}`` and a
frame of float32 rows, little-endian. Whatever goes wrong is told as ``{"error", "transient"}`` instead.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from events.errors import RefoldError, SetupError, Transient
from services.embedding.model import Matrix

LENGTH = struct.Struct("<I")
"""Before each body: how many bytes it has."""

_FORMAT = np.dtype("<f4")


def frame(body: bytes) -> bytes:
    """A body as it is sent."""
    return LENGTH.pack(len(body)) + body


def told(value: Mapping[str, Any]) -> bytes:
    """A JSON object as a frame; what is no text of Unicode in it becomes U+FFFD."""
    try:
        return frame(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return frame(orjson.dumps(_sound(value)))


def failure(error: RefoldError) -> bytes:
    """An error as a frame."""
    return told({"error": str(error), "transient": isinstance(error, Transient)})


def heard(body: bytes) -> dict[str, Any]:
    """The object of a frame. Raises the error that it tells, if it does: Transient or SetupError."""
    value: dict[str, Any] = orjson.loads(body)
    if "error" in value:
        raise (Transient if value["transient"] else SetupError)(value["error"])
    return value


def packed(rows: Matrix) -> bytes:
    """A matrix as a frame."""
    return frame(rows.astype(_FORMAT, copy=False).tobytes())


def unpacked(body: bytes, rows: int, dimension: int) -> Matrix:
    """The matrix of a frame, ``float32[rows, dimension]``."""
    return np.frombuffer(body, dtype=_FORMAT).reshape(rows, dimension).astype(np.float32, copy=False)


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {name: _sound(item) for name, item in value.items()}
    return [_sound(item) for item in value] if isinstance(value, list) else value
