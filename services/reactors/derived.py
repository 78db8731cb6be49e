"""Ids of derived events: from the reactor and the event it reacted to, so that trying again changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from uuid import UUID

from events.event import Event
from events.times import instant

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MILLISECOND = timedelta(milliseconds=1)


def derived_id(reactor: str, source: Event, part: str = "") -> str:
    """A UUID in the layout of version 7: the source event's time, then a hash where the random bits would be.

    The same reactor, source and part give the same id; time-ordered, so that the archive's index stays fast.
    """
    return named_id("\x1f".join((reactor, part, source.org, source.key, source.id)), instant(source.time))


def named_id(name: str, at: datetime) -> str:
    """The same for whatever has a name of its own, and a time."""
    random_bits = int.from_bytes(blake2b(name.encode(), digest_size=10).digest(), "big")
    milliseconds = max(0, (at - _EPOCH) // _MILLISECOND) & ((1 << 48) - 1)
    value = (
        milliseconds << 80 | 0x7 << 76 | (random_bits >> 62 & 0xFFF) << 64 | 0b10 << 62 | random_bits & ((1 << 62) - 1)
    )
    return str(UUID(int=value))
