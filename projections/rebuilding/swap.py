"""The swap: the moment in which another generation of a read model becomes the one that is read.

The active generation is *sealed*, so that nobody can advance it; the new one passes its positions; one transaction of
the registry makes that the one that is read. Whoever has lost its lease meanwhile, having been frozen say, swaps
nothing, and takes back its own seal only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, func, select

from events.database import Database, Stores, Work
from events.database_errors import CommitUnknown
from events.errors import RefoldError, Transient
from events.event import Position
from projections import generations
from projections.engine import checkpoints, tables
from projections.generations import Generation

T = TypeVar("T")

SETTLE_S = 30.0
"""How long the registry is asked whether a swap holds that failed in its commit: a server's restart takes less."""

_PAUSE_S = 0.2


def swap(
    generation: Generation,
    stores: Stores,
    log: Database,
    pass_it: Callable[[Mapping[int, Position]], None],
    still_ours: Callable[[Connection], None],
    replaces: Iterable[str] = (),
) -> Generation:
    """Make ``generation`` the one that is read; it, as it stands now.

    ``pass_it`` folds it up to the positions that it gets. ``still_ours`` raises Fenced, in a transaction of the log,
    when somebody else swaps by now. Raises what they raise, Refused for a generation that is no candidate, Transient;
    the former generation is then read and folded on.
    """
    log.write_now(still_ours)
    active = log.read_now(partial(generations.first_active, projections=(generation.projection, *replaces)))
    if active is None:
        _activate(generation, log, still_ours)
    else:
        db = stores.generation(active.name)
        try:
            stamp = _replace(generation, log, db, pass_it, still_ours)
            if active.projection != generation.projection:
                db.write_now(partial(_unseal, stamp=stamp))
        finally:
            db.close()
    return _read(log, partial(generations.get, projection=generation.projection, number=generation.number))


def unseal_abandoned(projection: str, stores: Stores, log: Database) -> None:
    """Let the active generation be folded again that a builder sealed which died. Only for who holds its lease now."""
    active = log.read_now(partial(generations.active, projection=projection))
    if active is None:
        return
    db = stores.generation(active.name)
    try:
        if db.read_now(checkpoints.is_sealed):
            db.write_now(partial(checkpoints.seal, sealed=False))
    finally:
        db.close()


def _replace(
    generation: Generation,
    log: Database,
    old: Database,
    pass_it: Callable[[Mapping[int, Position]], None],
    still_ours: Callable[[Connection], None],
) -> int | None:
    """Activate it behind the sealed ``old``; the stamp of that seal."""
    stamp = old.write_now(_seal)
    try:
        pass_it(old.read_now(checkpoints.read_vector))
        _activate(generation, log, still_ours)
    except RefoldError:
        # not what the exception says counts (a commit may hold all the same) but what the registry says
        if not _is_active(generation, log):
            old.write_now(partial(_unseal, stamp=stamp))
        raise
    return stamp


def _activate(generation: Generation, log: Database, still_ours: Callable[[Connection], None]) -> None:
    def work(conn: Connection) -> None:
        still_ours(conn)
        generations.activate(conn, generation)

    try:
        log.write_now(work)
    except CommitUnknown:
        if not _is_active(generation, log):
            raise


def _is_active(generation: Generation, log: Database) -> bool:
    active = _read(log, partial(generations.active, projection=generation.projection))
    return active is not None and active.number == generation.number


def _read(log: Database, work: Work[T]) -> T:
    """What the registry says, once it can be asked again."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return log.read_now(work)
        except Transient:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def _seal(conn: Connection) -> int | None:
    """Seal; a stamp that tells this seal from later ones, None when somebody else had sealed before."""
    before = checkpoints.is_sealed(conn)
    checkpoints.seal(conn, True)
    return None if before else _stamp(conn)


def _unseal(conn: Connection, stamp: int | None) -> None:
    """Take back the seal of that stamp, if it still is the last one."""
    if _stamp(conn) == stamp:
        checkpoints.seal(conn, False)


def _stamp(conn: Connection) -> int:
    # each seal raises every owner epoch, and while it lasts nobody can take a partition over
    return int(conn.execute(select(func.sum(tables.checkpoints.c.owner_epoch))).scalar_one())
