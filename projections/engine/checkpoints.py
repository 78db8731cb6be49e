"""Checkpoints: how far a partition is folded, who may advance it, and what its owners died of. SQL on a Connection.

Safety is here and nowhere else: whoever writes a read model compares and sets the checkpoint first, in the same
transaction; leases only decide who tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, false, func, select, update

from events.errors import Fenced
from events.event import START, Position
from projections.engine.fold import PartitionKey
from projections.engine.tables import checkpoints, parked_keys

SUSPICIOUS = 2
"""Owners that vanished at one checkpoint before its batch is taken in single steps."""

STRIKES = 3
"""Owners that vanished while an event was alone in its step before that event is parked."""


@dataclass
class Claim:
    """The right to fold a partition, until somebody else takes it over."""

    partition: int
    owner: str
    owner_epoch: int
    position: Position
    unclean: int
    strikes: int
    parked: set[PartitionKey]

    @property
    def suspicious(self) -> bool:
        """Processes died here: go on in single steps."""
        return self.unclean >= SUSPICIOUS or self.strikes > 0


def take_over(conn: Connection, partition: int, owner: str) -> Claim:
    """Become the partition's owner and read its checkpoint, in one transaction; a former owner is fenced from now on.

    An owner that did not hand over has vanished: that is counted, as a strike against the next event if that was
    alone in its step. ``owner`` names a process's life, not a machine. Raises Fenced while the generation is sealed.
    """
    table = checkpoints
    row = conn.execute(select(table).where(table.c.partition == partition).with_for_update()).mappings().one_or_none()
    if row is None:
        raise Fenced(f"partition {partition} has no checkpoint in this generation")
    vanished = row["owner"] not in ("", owner)
    unclean = row["unclean"] + (vanished and not row["alone"])
    strikes = row["strikes"] + (vanished and row["alone"])
    _set_if(
        conn, partition, row["owner_epoch"],
        owner_epoch=row["owner_epoch"] + 1, owner=owner, unclean=unclean, strikes=strikes, alone=False,
    )  # fmt: skip
    parked = conn.execute(select(parked_keys.c.org, parked_keys.c.key).where(parked_keys.c.partition == partition))
    return Claim(
        partition, owner, row["owner_epoch"] + 1, Position(row["epoch"], row["n"]), unclean, strikes,
        {(org, key) for org, key in parked},
    )  # fmt: skip


def hand_over(conn: Connection, claim: Claim) -> None:
    """Give the partition up cleanly. Somebody else's partition is left as it is."""
    table = checkpoints
    conn.execute(
        update(table)
        .where(table.c.partition == claim.partition, table.c.owner_epoch == claim.owner_epoch)
        .values(owner="", alone=False)
    )


def mark_alone(conn: Connection, claim: Claim, alone: bool) -> None:
    """Record that the event after the checkpoint is about to be folded with nothing else going on, or no longer."""
    _set_if(conn, claim.partition, claim.owner_epoch, alone=alone)


def advance(conn: Connection, claim: Claim, new: Position) -> None:
    """Compare and set the checkpoint: from the claim's position to ``new``. First in its transaction.

    Raises Fenced when the checkpoint or its owner is another one by now.
    """
    table = checkpoints
    old = claim.position
    advanced = conn.execute(
        update(table)
        .where(
            table.c.partition == claim.partition,
            table.c.epoch == old.epoch,
            table.c.n == old.n,
            table.c.owner_epoch == claim.owner_epoch,
            table.c.sealed == false(),
        )
        .values(epoch=new.epoch, n=new.n, unclean=0, strikes=0, alone=False, paused="")
    )
    if advanced.rowcount != 1:
        raise Fenced(f"partition {claim.partition} is no longer ours at {old}: somebody else took it over")


def raise_owner_epoch(conn: Connection, partition: int) -> None:
    """Fence the owner, whoever it is, since this transaction writes the read model beside it."""
    table = checkpoints
    conn.execute(update(table).where(table.c.partition == partition).values(owner_epoch=table.c.owner_epoch + 1))


def set_paused(conn: Connection, claim: Claim, reason: str) -> None:
    """Show why the partition waits."""
    table = checkpoints
    conn.execute(
        update(table)
        .where(table.c.partition == claim.partition, table.c.owner_epoch == claim.owner_epoch)
        .values(paused=reason[:500])
    )


def seal(conn: Connection, sealed: bool) -> None:
    """Let nobody advance any partition (``sealed``), or let them again; owners are fenced either way."""
    conn.execute(update(checkpoints).values(sealed=sealed, owner_epoch=checkpoints.c.owner_epoch + 1))


def read_vector(conn: Connection) -> dict[int, Position]:
    """The checkpoint of each partition."""
    table = checkpoints
    return {
        partition: Position(epoch, n)
        for partition, epoch, n in conn.execute(select(table.c.partition, table.c.epoch, table.c.n))
    }


def read_position(conn: Connection, partition: int) -> tuple[Position, int]:
    """Checkpoint and owner epoch of a partition."""
    table = checkpoints
    epoch, n, owner_epoch = conn.execute(
        select(table.c.epoch, table.c.n, table.c.owner_epoch).where(table.c.partition == partition)
    ).one()
    return Position(epoch, n), owner_epoch


def is_sealed(conn: Connection) -> bool:
    """Whether another generation is taking this one's place, or has."""
    return bool(conn.execute(select(checkpoints.c.partition).where(checkpoints.c.sealed).limit(1)).first())


def new_rows(partitions: int) -> list[dict[str, Any]]:
    """Checkpoints of an empty generation."""
    fresh = {
        "epoch": START.epoch, "n": START.n, "owner_epoch": 0, "owner": "", "unclean": 0, "strikes": 0,
        "alone": False, "sealed": False, "paused": "",
    }  # fmt: skip
    return [{"partition": partition, **fresh} for partition in range(partitions)]


def count(conn: Connection, table: Table) -> int:
    """Rows of a table."""
    return int(conn.execute(select(func.count()).select_from(table)).scalar_one())


def _set_if(conn: Connection, partition: int, expected_epoch: int, **values: Any) -> None:
    table = checkpoints
    changed = conn.execute(
        update(table)
        .where(table.c.partition == partition, table.c.owner_epoch == expected_epoch, table.c.sealed == false())
        .values(**values)
    )
    if changed.rowcount != 1:
        raise Fenced(f"partition {partition}: somebody else took it over, or its generation is sealed")
