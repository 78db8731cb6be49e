"""Let go of what the archive holds: a slow consumer reads the archive instead of pinning memory in Redis."""

from __future__ import annotations

from redis.asyncio import Redis

from events.event import Position
from events.log.layout import keys_of
from events.log.scripts import Script, redis_errors

_ARCHIVED = Script("archived")


async def trim(redis: Redis, partition: int, watermark: Position, keep: int) -> int:
    """Note that everything up to ``watermark`` is archived, and trim all of it but the newest ``keep`` entries.

    Call it after each advance of the watermark: append forgets old ids only when it knows that they are archived.
    The number of entries removed; some more than ``keep`` may stay, since Redis removes whole nodes. A watermark of
    another epoch does nothing. Raises Transient.
    """
    keys = keys_of(partition)
    following = await _ARCHIVED.run(redis, keys[:4], *watermark)
    if following is None:
        return 0
    last = min(watermark.n, int(following) - 1 - keep)
    removed = 0
    while last >= 0:
        with redis_errors():
            # one call removes at most 10,000
            now = await redis.xtrim(keys.log, minid=f"{watermark.epoch}-{last + 1}", approximate=True)
        if not now:
            break
        removed += int(now)
    return removed
