"""Let go of what the archive holds: a slow consumer reads the archive instead of pinning memory in Redis."""

from __future__ import annotations

from events.event import START, Position
from events.log.client import AnyRedis
from events.log.layout import keys_of
from events.log.scripts import Script

_ARCHIVED = Script("archived")


async def trim(
    redis: AnyRedis, log_id: str, partition: int, watermark: Position, keep: int, erasure: Position = START
) -> int:
    """Note that everything up to ``watermark`` is archived, and trim all of it but the newest ``keep`` entries.

    Call it after each advance of the watermark: append forgets old ids only when it knows that they are archived.
    The number of entries removed; some more than ``keep`` may stay, since Redis removes whole nodes. A watermark of
    another epoch, or of another log, does nothing. Before an archived ``erasure`` of this epoch nothing stays at all:
    that of an earlier epoch is not in the log any more. Raises Transient.
    """
    keys, removed = keys_of(partition), 0
    while now := await _ARCHIVED.run(redis, keys[:4], *watermark, keep, log_id, *erasure):
        removed += int(now)
    return removed
