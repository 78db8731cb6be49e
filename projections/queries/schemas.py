"""Schema versions of opaque data, as their writers name them: ``3``, ``2.1``, or any text."""

from __future__ import annotations

import re
from typing import Literal

_DOTTED = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})", re.ASCII)

Compared = Literal["same", "older", "newer", "other"]


def compare_schemas(stored: str, known: str) -> Compared:
    """How the version of stored data compares with the one that a reader knows; ``other`` where no order is known.

    >>> [compare_schemas(stored, "2.1") for stored in ("2.1", "v2", "2.10", "2.1.0", "beta", "")]
    ['same', 'older', 'newer', 'same', 'other', 'other']
    """
    if stored == known:
        return "same"
    ours, theirs = _numbers(stored), _numbers(known)
    if ours is None or theirs is None:
        return "other"
    return "same" if ours == theirs else "newer" if ours > theirs else "older"


def _numbers(version: str) -> tuple[int, ...] | None:
    match = _DOTTED.fullmatch(version)
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
