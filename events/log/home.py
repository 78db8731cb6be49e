"""At which Redis a log lives. An empty one elsewhere does not get it while that one is at work.

Archivers say where they archive, in SQL, every few seconds in which that works. A process that is led to another, empty
Redis, a second instance on the same database say, is refused; when nobody has said so for a while, as after a failover
to a new server, the log goes on there. A Redis that holds anything of the log, a promoted replica say, is opened as
ever. This guards against a mistake, and no more: that nothing is lost or doubled does not rest on it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from redis.asyncio import Redis
from sqlalchemy import Connection, select, text

from events.archive.schema import leases
from events.archive.store import log_id
from events.clock import database_now_ms
from events.database import Database
from events.errors import SetupError, Transient
from events.event import START
from events.log.client import AnyRedis, Cluster
from events.log.redis_errors import redis_errors
from events.log.tail import check

HELD_S = 10.0
"""How long the log's home stays its home after the last word of an archiver there."""
SAID_EVERY_S = 3.0

_NAME = "log/home"
_SAY = text(
    "INSERT INTO leases (name, partition, owner, owner_epoch, expires_ms) VALUES (:name, 0, :owner, 1, :until_ms) "
    "ON CONFLICT (name, partition) DO UPDATE SET owner = excluded.owner, expires_ms = excluded.expires_ms"
)
_POLL_S = 0.5
_LOOPBACK = ("localhost", "127.", "::1")

Places = frozenset[str]
"""Addresses of a Redis; of a cluster, those of its masters. Two that share one are the same Redis."""


class Home(NamedTuple):
    """Where the log lived by the last word of an archiver, and the moment (database's clock) until which that holds."""

    places: Places
    until_ms: int


async def places_of(redis: AnyRedis) -> Places:
    """Where a Redis is. Raises Transient for a cluster none of whose nodes answers."""
    if isinstance(redis, Cluster):
        with redis_errors():
            return frozenset(map(_place, await redis.masters()))
    return frozenset((_place(redis),))


def say(conn: Connection, places: Places) -> None:
    """The log lives here."""
    values = {"owner": ",".join(sorted(places)), "until_ms": database_now_ms(conn) + int(HELD_S * 1000)}
    conn.execute(_SAY, {"name": _NAME, **values})


def elsewhere(conn: Connection, places: Collection[str]) -> Home | None:
    """The log's home, when that is another Redis than the one at ``places``, and still holds."""
    here = (leases.c.name == _NAME) & (leases.c.partition == 0)
    found = conn.execute(select(leases.c.owner, leases.c.expires_ms).where(here)).one_or_none()
    if found is None:
        return None
    home = Home(frozenset(found.owner.split(",")), found.expires_ms)
    # what promises more than can be was written before the database's clock went back
    holds = 0 <= home.until_ms - database_now_ms(conn) <= HELD_S * 1000
    return home if holds and home.places.isdisjoint(places) else None


def move_in(conn: Connection, places: Places, *, empty: bool) -> None:
    """Make this Redis the log's home. Raises Transient when it is ``empty`` and the log is alive elsewhere."""
    home = elsewhere(conn, places) if empty else None
    if home is not None:
        raise Transient(_told(home))
    say(conn, places)


async def refuse_second(redis: AnyRedis, db: Database) -> None:
    """Whoever starts with an empty Redis while the log is alive at another one is refused; waits until that is sure.

    Raises SetupError then, and Transient when a store cannot be reached.
    """
    places = await places_of(redis)
    home = await db.read(partial(elsewhere, places=places))
    if home is None or (await check(redis, await db.read(log_id), 0, START)).log_id:
        return
    while (now := await db.read(partial(elsewhere, places=places))) is not None:
        if now.until_ms != home.until_ms:
            raise SetupError(_told(now))
        await asyncio.sleep(_POLL_S)


def _told(home: Home) -> str:
    return (
        f"the log of this database is alive at another Redis ({', '.join(sorted(home.places))}), and the one that "
        "REDIS_URL names is empty: point REDIS_URL there, or the second instance to a database of its own; to move the "
        f"log to this Redis, stop what archives there: {HELD_S:g} s later it goes on here"
    )


def _place(node: Redis) -> str:
    """The address, with the machine's name where it is one that every machine has."""
    options = node.connection_pool.connection_kwargs
    host, port, number = options.get("host", "localhost"), options.get("port", 6379), options.get("db") or 0
    if path := options.get("path"):
        return f"{socket.gethostname()}:{path}/{number}"
    shown = f"{socket.gethostname()}/{host}" if str(host).startswith(_LOOPBACK) else host
    return f"{shown}:{port}/{number}"
