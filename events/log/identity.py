"""Whose log a Redis holds. One Redis, one log: two stores on one would end each other's epochs without end.

A log's identity is a random name that SQL keeps with it (``events.archive.store.log_id``). On Redis it stands in the
key ``OWNER``, looked at first, and in the meta of each partition, where every script and every reader compares it.
"""

from __future__ import annotations

from typing import Any

from events.errors import Fenced, SetupError
from events.event import START
from events.log.client import AnyRedis, ask
from events.log.layout import OWNER
from events.log.tail import check


async def claim(redis: AnyRedis, log_id: str) -> None:
    """Make sure that this Redis is the log's; an empty one becomes so, and of several logs at once only one gets it.

    Raises SetupError when it is another log's or the key holds no name, Transient when it cannot be asked.
    """
    try:
        owner: Any = await ask(redis, OWNER, lambda node: node.get(OWNER))
    except Fenced as error:
        raise SetupError(f"{error} (key {OWNER}): delete it if no other log is on this Redis") from error
    if owner is None:
        # the key alone may be gone: evicted, or deleted by hand
        holder = (await check(redis, log_id, 0, START)).log_id
        if holder and holder != log_id:
            raise other_log(holder, log_id)
        owner = await ask(redis, OWNER, lambda node: node.set(OWNER, log_id, nx=True, get=True))
    if owner is not None and owner != log_id.encode():
        raise other_log(owner.decode(errors="replace"), log_id)


def other_log(holder: str, log_id: str) -> SetupError:
    """The refusal to use what belongs to the log ``holder``."""
    return SetupError(
        f"this Redis holds the log of another store (log {holder[:8]}, ours is {log_id[:8]}): "
        "point REDIS_URL elsewhere, or say `refold restore --adopt` if that log is gone "
        "(its archive keeps what was acknowledged)"
    )
