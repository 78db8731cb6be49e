"""The dry run of a rebuild: what the running code makes of the log, compared with what is live. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection

from events.archive import queries
from events.database import Database, Stores
from events.errors import Refused
from events.event import START, Position
from projections import generations
from projections.engine import checkpoints
from projections.engine.discards import discarded
from projections.engine.fold import Refusal
from projections.engine.pace import Pace
from projections.engine.source import lag
from projections.engine.store import GenerationStore
from projections.projection import Projection
from projections.rebuilding.diff import FIRST, Diff, compare
from projections.rebuilding.scope import Scope, check_scope, scoped
from projections.rebuilding.scratch import Refold, read_deadly, scratch_store

BATCH = 10_000
CACHE_ROWS = 100_000

Told = Callable[[int, int], None]
"""Hears (events folded, events in all)."""


@dataclass(frozen=True)
class DryRun:
    """What a rebuild would change.

    ``events`` were folded in ``seconds``, in one process: a rebuild takes about as long (``eta_s``), less with several.
    ``current_code`` tells whether the live generation was made by code that means the same as the running one.
    """

    name: str
    generation: int
    current_code: bool
    scope: Scope
    events: int
    seconds: float
    diff: Diff

    def as_dict(self) -> dict[str, Any]:
        """What ``refold rebuild NAME --dry-run --json`` prints."""
        return {
            "name": self.name,
            "generation": self.generation,
            "current_code": self.current_code,
            "tenant": self.scope.org,
            "key": self.scope.key,
            "events": self.events,
            "events_per_s": round(self.events / max(self.seconds, 1e-3)),
            "eta_s": round(self.seconds, 3),
            "differs": self.diff.differs,
            **self.diff.as_dict(),
        }


def dry_run(
    projection: Projection,
    stores: Stores,
    log: Database,
    *,
    scope: Scope = Scope(),  # noqa: B008 - frozen
    first: int = FIRST,
    batch: int = BATCH,
    told: Told = lambda done, total: None,
    cancel: Callable[[], bool] = lambda: False,
    max_events_per_s: float | None = None,
) -> DryRun:
    """Fold the log by the running code into a scratch generation and compare that with the live one. Blocking.

    Both are compared at the same positions, row by row; the live one goes on meanwhile, and may have been made by other
    code, with other tables. ``max_events_per_s`` leaves room for the rest. Raises Refused when there is no generation
    or a key names no rows, Cancelled.
    """
    check_scope(projection, scope)
    live = log.read_now(partial(generations.serving, projection=projection))
    if live is None:
        raise Refused(f"{projection.name} has no generation yet: start a projector first", code="no_generation")
    db = stores.generation(live.name)
    began = time.monotonic()
    try:
        with scratch_store(scoped(projection, scope), stores, log) as scratch:
            refold = refold_beside(
                scratch, db, log, scope, batch=batch, told=told, cancel=cancel, max_events_per_s=max_events_per_s
            )
            refold.after(db)
            seconds = time.monotonic() - began
            diff = db.read_now(partial(_compare, refold=refold, projection=projection, scope=scope, first=first))
    finally:
        db.close()
    return DryRun(projection.name, live.number, live.matches(projection), scope, refold.done, seconds, diff)


def refold_beside(
    scratch: GenerationStore,
    live: Database,
    log: Database,
    scope: Scope,
    *,
    batch: int,
    told: Told,
    cancel: Callable[[], bool],
    max_events_per_s: float | None = None,
) -> Refold:
    """A fold of the partitions that a scope needs.

    Neither what killed the folds of the live generation nor what the log itself takes back is tried.
    """
    vector, deadly = live.read_now(lambda conn: (checkpoints.read_vector(conn), read_deadly(conn)))
    partitions = scope.partitions(len(vector))

    def look(conn: Connection) -> tuple[int, dict[tuple[int, Position], Refusal]]:
        epochs, back = queries.read_epochs(conn), {}
        for partition in partitions:
            found = discarded(conn, scratch.projection, partition, START, vector[partition])
            back.update({(partition, position): refusal for position, refusal in found.items()})
        return sum(lag(START, vector[partition], epochs.get(partition, {})) for partition in partitions), back

    total, taken_back = log.read_now(look)
    return Refold(
        scratch, log, partitions, batch=batch, cache_rows=CACHE_ROWS, refused=taken_back | deadly,
        told=lambda done: told(done, max(done, total)), cancel=cancel, pace=Pace(max_events_per_s),
    )  # fmt: skip


def _compare(conn: Connection, refold: Refold, projection: Projection, scope: Scope, first: int) -> Diff:
    """Bring the scratch to where this snapshot of the live generation is, and compare."""
    refold.to(checkpoints.read_vector(conn))
    return refold.store.db.read_now(lambda new: compare(conn, new, projection, scope, first))
