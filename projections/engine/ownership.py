"""Leases: who tries to fold what. On the database's clock, so that no machine's own matters.

A lease is liveness only. That two owners never both commit follows from the checkpoint's compare-and-set alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from sqlalchemy import Connection, TextClause, select, text, update

from events.archive.schema import leases
from events.clock import DATABASE_NOW_MS
from events.errors import Fenced

LONGEST_S = 3600.0
"""The longest lease that can be set."""

_WORKER = "worker/"
_FAR = 10
"""Times a lease: what expired so long ago is cleared away, and what promises so much was written before the database's
clock went back, by somebody who may be dead."""


def acquire(conn: Connection, name: str, partition: int, owner: str, ttl_s: float) -> bool:
    """Take a lease that is free, expired, already ours, or from before the clock went back; False when it is held."""
    statement = _sql(
        conn,
        "INSERT INTO leases (name, partition, owner, owner_epoch, expires_ms) "
        "VALUES (:name, :partition, :owner, 1, {now} + :ttl_ms) "
        "ON CONFLICT (name, partition) DO UPDATE SET owner = excluded.owner, expires_ms = excluded.expires_ms, "
        "owner_epoch = leases.owner_epoch + 1 WHERE leases.expires_ms < {now} OR leases.owner = excluded.owner "
        "OR leases.expires_ms > {now} + :far_ms",
    )
    ttl_ms = int(ttl_s * 1000)
    values = {"name": name, "partition": partition, "owner": owner, "ttl_ms": ttl_ms, "far_ms": _FAR * ttl_ms}
    return conn.execute(statement, values).rowcount == 1


def renew(conn: Connection, owner: str, ttl_s: float) -> set[tuple[str, int]]:
    """Prolong every lease of ``owner``; the (name, partition) of those that it still holds."""
    table = leases
    mine = select(table.c.name, table.c.partition).where(table.c.owner == owner)
    # locked in the order in which others acquire them, should they have expired: or PostgreSQL ends one as a deadlock
    conn.execute(mine.order_by(table.c.name, table.c.partition).with_for_update())
    statement = _sql(conn, "UPDATE leases SET expires_ms = {now} + :ttl_ms WHERE owner = :owner")
    conn.execute(statement, {"owner": owner, "ttl_ms": int(ttl_s * 1000)})
    return {(name, partition) for name, partition in conn.execute(mine)}


def release(conn: Connection, name: str, partition: int, owner: str) -> None:
    """Give a lease back at once, so that nobody waits for it to expire."""
    table = leases
    conn.execute(table.delete().where(table.c.name == name, table.c.partition == partition, table.c.owner == owner))


def forsake(conn: Connection, dead: str, own: str) -> int:
    """Give back what owners whose names begin with ``dead`` held, and how much that was; those of ``own`` keep theirs.

    For whoever knows that a process is gone: nobody has to wait for its leases. Where it is not gone after all it takes
    up others, as one does whose leases ran out.
    """
    values = {"dead": dead, "dead_length": len(dead), "own": own, "own_length": len(own)}
    theirs = "WHERE substr(owner, 1, :dead_length) = :dead AND substr(owner, 1, :own_length) <> :own"
    if conn.dialect.name == "postgresql":  # in the order in which others lock them, as in ``renew``
        conn.execute(text(f"SELECT 1 FROM leases {theirs} ORDER BY name, partition FOR UPDATE"), values)
    return conn.execute(text(f"DELETE FROM leases {theirs}"), values).rowcount


def confirm(conn: Connection, name: str, partition: int, owner: str) -> None:
    """Keep a lease ours until this transaction ends. Raises Fenced when it is somebody else's by now."""
    table = leases
    mine = (table.c.name == name) & (table.c.partition == partition) & (table.c.owner == owner)
    if conn.execute(update(table).where(mine).values(owner=owner)).rowcount != 1:
        raise Fenced(f"{name}: the lease is no longer ours, somebody else goes on with it")


def is_held(conn: Connection, name: str, partition: int = 0) -> bool:
    """Whether anybody holds this lease now."""
    statement = _sql(conn, "SELECT 1 FROM leases WHERE name = :name AND partition = :partition AND expires_ms >= {now}")
    return conn.execute(statement, {"name": name, "partition": partition}).first() is not None


@dataclass(frozen=True)
class Survey:
    """Who is at work on a generation now: live workers, and the owner of each partition that is held."""

    workers: frozenset[str]
    owners: Mapping[int, str]


def join(conn: Connection, generation: str, owner: str, ttl_s: float) -> None:
    """Be counted as a worker of a generation. Those long gone are cleared away."""
    gone = _sql(
        conn,
        "DELETE FROM leases WHERE substr(name, 1, :length) = :prefix "
        "AND (expires_ms < {now} - :far_ms OR expires_ms > {now} + :far_ms)",
    )
    prefix = f"{_WORKER}{generation}/"
    conn.execute(gone, {"prefix": prefix, "length": len(prefix), "far_ms": int(_FAR * ttl_s * 1000)})
    acquire(conn, prefix + owner, 0, owner, ttl_s)


def leave(conn: Connection, generation: str, owner: str) -> None:
    """Be no longer counted."""
    release(conn, f"{_WORKER}{generation}/{owner}", 0, owner)


def survey(conn: Connection, generation: str, ttl_s: float = LONGEST_S) -> Survey:
    """The live leases of a generation; one from before the clock went back is not."""
    prefix = f"{_WORKER}{generation}/"
    statement = _sql(
        conn,
        "SELECT name, partition, owner FROM leases "
        "WHERE (name = :name OR substr(name, 1, :length) = :prefix) AND expires_ms BETWEEN {now} AND {now} + :far_ms",
    )
    values = {"name": generation, "prefix": prefix, "length": len(prefix), "far_ms": int(_FAR * ttl_s * 1000)}
    rows = conn.execute(statement, values).all()
    return Survey(
        frozenset(owner for name, _, owner in rows if name != generation),
        {partition: owner for name, partition, owner in rows if name == generation},
    )


def fair_share(partitions: int, workers: int) -> int:
    """How many partitions one of ``workers`` holds at most."""
    return ceil(partitions / max(1, workers))


def rebuild_lease(projection: str) -> str:
    """Name of the lease that whoever builds a generation of this read model holds."""
    return f"rebuild/{projection}"


def _sql(conn: Connection, statement: str) -> TextClause:
    return text(statement.format(now=DATABASE_NOW_MS[conn.dialect.name]))
