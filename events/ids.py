"""Ids that follow from what they name: whoever makes the same thing again makes the same event of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from uuid import UUID

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MILLISECOND = timedelta(milliseconds=1)


def named_id(name: str, at: datetime) -> str:
    """A UUID in the layout of version 7 (RFC 9562): a time, then a hash of the name where the random bits would be.

    Time-ordered, so that the archive's index stays fast.
    """
    random_bits = int.from_bytes(blake2b(name.encode(), digest_size=10).digest(), "big")
    milliseconds = max(0, (at - _EPOCH) // _MILLISECOND) & ((1 << 48) - 1)
    value = (
        milliseconds << 80 | 0x7 << 76 | (random_bits >> 62 & 0xFFF) << 64 | 0b10 << 62 | random_bits & ((1 << 62) - 1)
    )
    return str(UUID(int=value))
