"""How far each reactor has come in each partition, and who may say so: SQL on a Connection of the log store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update

from events.archive.queries import read_watermarks
from events.archive.schema import reactor_checkpoints
from events.errors import Fenced
from events.event import START, Position
from services.reactors.reactor import Reactor

_table = reactor_checkpoints


class Claim(NamedTuple):
    """The right to run a reactor over a partition, until somebody else takes it over."""

    reactor: str
    partition: int
    owner_epoch: int
    position: Position


def introduce(conn: Connection, reactors: Iterable[Reactor]) -> None:
    """Give new reactors their checkpoints: at the log's tail, or at its start for one that asks for it."""
    introduce_names(conn, [(reactor.key, reactor.from_start) for reactor in reactors])


def introduce_names(conn: Connection, followers: Iterable[tuple[str, bool]]) -> None:
    """The same for whatever follows the log by such checkpoints: its name, and whether it begins at the log's start."""
    marks = read_watermarks(conn)
    known = {(reactor, partition) for reactor, partition in conn.execute(select(_table.c.reactor, _table.c.partition))}
    for name, from_start in followers:
        for partition, mark in marks.items():
            if (name, partition) not in known:
                epoch, n = START if from_start else mark
                row = {"reactor": name, "partition": partition, "epoch": epoch, "n": n, "owner_epoch": 0}
                conn.execute(insert(_table), row)


def take_over(conn: Connection, reactor: str, partition: int) -> Claim:
    """Become the owner; a former one is fenced from now on."""
    mine = (_table.c.reactor == reactor) & (_table.c.partition == partition)
    conn.execute(update(_table).where(mine).values(owner_epoch=_table.c.owner_epoch + 1))
    epoch, n, owner_epoch = conn.execute(select(_table.c.epoch, _table.c.n, _table.c.owner_epoch).where(mine)).one()
    return Claim(reactor, partition, owner_epoch, Position(epoch, n))


def advance(conn: Connection, claim: Claim, new: Position) -> Claim:
    """Compare and set the checkpoint; the claim as it stands now. Raises Fenced when somebody else took it over."""
    old = claim.position
    advanced = conn.execute(
        update(_table)
        .where(
            _table.c.reactor == claim.reactor,
            _table.c.partition == claim.partition,
            _table.c.epoch == old.epoch,
            _table.c.n == old.n,
            _table.c.owner_epoch == claim.owner_epoch,
        )
        .values(epoch=new.epoch, n=new.n)
    )
    if advanced.rowcount != 1:
        raise Fenced(f"reactor {claim.reactor}: partition {claim.partition} is no longer ours at {old}")
    return claim._replace(position=new)
