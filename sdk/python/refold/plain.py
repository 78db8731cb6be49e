"""Any Python value as JSON that the backend takes: recording must never be what breaks an agent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

MAX_DEPTH = 48
"""The backend refuses more than 64 levels; the envelope and the payload take some of them."""

MAX_VALUE_BYTES = 256 << 10
"""A larger value is published as head, tail and digest (the backend refuses events over 1 MiB)."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def plain(value: Any, depth: int = 0) -> Any:
    """A copy made of dict, list, str, int, float, bool and None.

    NaN and infinities become None, integers beyond 64 bits and unknown objects become text, lone surrogates U+FFFD, and
    what nests deeper than MAX_DEPTH a text that says so.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= MAX_DEPTH:
        return f"<nested deeper than {MAX_DEPTH} levels: {type(value).__name__}>"
    if isinstance(value, Mapping):
        return {str(plain(str(key))): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        # a set has no order of its own, and equal arguments must give equal idempotency keys
        return sorted((plain(item, depth + 1) for item in value), key=lambda item: orjson.dumps(item))
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return plain(bytes(value).decode("utf-8", "replace"))
    return plain(str(value))


def fit(value: Any, limit: int = MAX_VALUE_BYTES) -> Any:
    """The plain value, or ``{"head", "tail", "digest", "bytes"}`` of its text when that is over ``limit`` bytes.

    ``digest`` is ``sha256:<hex>`` of the whole text, ``bytes`` its length in UTF-8. Head and tail together take half
    the limit, three to one, since their escapes may double them in JSON.
    """
    value = plain(value)
    raw = value.encode() if isinstance(value, str) else orjson.dumps(value)
    if len(raw) <= limit:
        return value
    head, tail = raw[: limit * 3 // 8], raw[-(limit // 8) :]
    return {
        "head": head.decode("utf-8", "ignore"),
        "tail": tail.decode("utf-8", "ignore"),
        "digest": f"sha256:{sha256(raw).hexdigest()}",
        "bytes": len(raw),
    }
