"""What keeps rows small: short keys for indexes, text cut between graphemes, large values by head and digest."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson
import regex

MAX_KEY_BYTES = 96
"""PostgreSQL refuses index rows over 2,704 bytes, and a key follows an org and a partition key of up to 1 KiB each."""

_GRAPHEME = regex.compile(r"\X")
_ELLIPSIS = "…"


def digest(text: str) -> str:
    """32 hexadecimal digits of BLAKE2b."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def short(text: str) -> str:
    """A name as it stands in a primary key: itself, or its head and digest when it is longer than an index can hold."""
    if len(text) * 4 <= MAX_KEY_BYTES:
        return text
    raw = text.encode()
    return text if len(raw) <= MAX_KEY_BYTES else f"{raw[:56].decode(errors='ignore')}~{digest(text)}"


def whole(text: str) -> str:
    """The name in full, where ``short`` had to cut it, else ``""``: for the column beside the key."""
    return "" if short(text) == text else text


def clip(text: str, limit: int) -> str:
    """At most ``limit`` code points, cut between graphemes, an ellipsis in the last place when something was cut."""
    if len(text) <= limit:
        return text
    if text.isascii():
        return text[: limit - 1] + _ELLIPSIS
    end = 0
    # a little text past the cut lets the last cluster show its true end
    for match in _GRAPHEME.finditer(text, 0, limit + 64):
        if match.end() > limit - 1:
            break
        end = match.end()
    return text[:end] + _ELLIPSIS


def canonical(value: Any) -> str:
    """JSON text with sorted keys: equal values, equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def clip_json(value: Any, limit: int, *, at_most: int) -> Any:
    """The value itself while its JSON has at most ``limit`` characters, else its head, size and digest.

    ``at_most`` is a size that the caller knows it cannot exceed (the event's own), which saves the look.
    """
    if at_most <= limit:
        return value
    text = canonical(value)
    if len(text) <= limit:
        return value
    head = value if isinstance(value, str) else text
    return {"clipped": True, "head": clip(head, limit), "chars": len(text), "digest": digest(text)}
