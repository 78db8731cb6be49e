"""Mending the live generation of a read model: one key's rows, or one tenant's, made anew from the archive.

What they should be is folded into a scratch generation beside it. One transaction then raises the owner epochs of the
partitions concerned (so that no owner writes on from what it had cached), brings the scratch to where they are, and
replaces the rows. Projectors take their partitions over again and go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, select

from events.bulk import bulk_insert
from events.database import Database, Stores
from events.errors import Refused, Transient
from projections import generations
from projections.engine import checkpoints, tables
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.diff import FIRST, Diff, Tables, compare, tables_of
from projections.rebuilding.dry_run import BATCH, Told, refold_beside
from projections.rebuilding.scope import Scope, check_scope, scoped
from projections.rebuilding.scratch import Refold, scratch_store

_PAGE = 2000


@dataclass(frozen=True)
class Mended:
    """What was put right: ``diff`` tells the rows that were others before."""

    name: str
    generation: int
    scope: Scope
    events: int
    diff: Diff

    def as_dict(self) -> dict[str, Any]:
        """What ``refold rebuild NAME --key KEY --json`` prints."""
        return {
            "name": self.name,
            "generation": self.generation,
            "tenant": self.scope.org,
            "key": self.scope.key,
            "events": self.events,
            "differs": self.diff.differs,
            **self.diff.as_dict(),
        }


def mend(
    projection: Projection,
    stores: Stores,
    log: Database,
    scope: Scope,
    *,
    first: int = FIRST,
    batch: int = BATCH,
    told: Told = lambda done, total: None,
    cancel: Callable[[], bool] = lambda: False,
) -> Mended:
    """Make the rows within a scope what the log says they are. Blocking; reads, writes and projectors go on.

    Raises Refused for everything at once (that is a rebuild), for a generation of other code, where there is none, and
    where a key names no rows; Cancelled; Transient while a rebuild takes the generation's place.
    """
    if scope.everything:
        raise Refused("name a tenant or a key: everything at once is a rebuild", code="no_scope")
    check_scope(projection, scope)
    found = log.read_now(partial(generations.active, projection=projection.name))
    live = generations.of_this_code(found, projection)
    db = stores.generation(live.name)
    try:
        with scratch_store(scoped(projection, scope), stores, log) as scratch:
            refold = refold_beside(scratch, db, log, scope, batch=batch, told=told, cancel=cancel)
            # before it, since owners wait while that transaction lasts
            shapes = db.read_now(tables_of), scratch.db.read_now(tables_of)
            refold.after(db)
            diff = db.write_now(
                partial(_replace, refold=refold, projection=projection, scope=scope, first=first, shapes=shapes)
            )
    finally:
        db.close()
    return Mended(projection.name, live.number, scope, refold.done, diff)


def _replace(
    conn: Connection,
    refold: Refold,
    projection: Projection,
    scope: Scope,
    first: int,
    shapes: tuple[Tables, Tables],
) -> Diff:
    for partition in refold.partitions:
        # first, as in every commit: it fences the owner, and makes it wait if it is committing
        checkpoints.raise_owner_epoch(conn, partition)
    if checkpoints.is_sealed(conn):
        raise Transient(f"a rebuild is taking the place of this generation of {projection.name}: try again")
    refold.to(checkpoints.read_vector(conn))
    diff = refold.store.db.read_now(lambda new: compare(conn, new, projection, scope, first, shapes))
    if diff.differs:
        refold.store.db.read_now(partial(_copy, to=conn, store=refold.store, scope=scope))
    return diff


def _copy(scratch: Connection, to: Connection, store: GenerationStore, scope: Scope) -> None:
    """Put the rows of the scratch within a scope in the place of those that are there."""
    engines = (tables.dead_letters, tables.parked_keys)
    written = [(shape.driver_table, shape.all_columns) for shape in store.shapes.values()]
    written += [(table, tuple(str(column.name) for column in table.columns)) for table in engines]
    for table, columns in written:
        to.execute(delete(table).where(scope.condition(table)))
        query = select(*(table.c[name] for name in columns)).where(scope.condition(table))
        for page in scratch.execute(query.execution_options(yield_per=_PAGE)).partitions():
            bulk_insert(to, table, columns, page)
