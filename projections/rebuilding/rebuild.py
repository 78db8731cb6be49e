"""Rebuild: fold the log into a new generation beside the active one, and swap with no downtime.

Publishers, other projections and readers notice nothing: the active generation is folded and read until the moment in
which the new one has everything that it has. Then it is *sealed* (nobody can advance it), the new one passes it, and
one transaction of the registry makes that the one that is read. A builder that dies is continued from its checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from events.archive import queries
from events.database import Database, Stores
from events.errors import Refused
from projections import generations
from projections.engine import checkpoints
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.building import BATCH, LEASE_TTL_S, Build, CheckFailed, lease
from projections.rebuilding.progress import Cancelled, Progress
from projections.rebuilding.rebuild_together import NotAllRebuilt, rebuild_together
from projections.rebuilding.swap import swap

__all__ = ["BATCH", "Cancelled", "CheckFailed", "Progress", "drop", "drop_old", "rebuild", "rollback"]


def rebuild(
    projection: Projection,
    stores: Stores,
    log: Database,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] = lambda: False,
    verify: bool = False,
    allow_dead_letters: bool = False,
    batch: int = BATCH,
    processes: int | None = None,
    lease_ttl_s: float = LEASE_TTL_S,
    max_events_per_s: float | None = None,
) -> Generation:
    """Build the next generation of a read model and make it the active one, which is returned. Blocking.

    Many events are folded by several ``processes`` (default: one a core). A build of the same code whose builder died
    is continued. With ``verify`` the new generation is compared with a second, independent refold before the swap.
    ``max_events_per_s`` limits folding and checking, over all processes, so that they leave room for the rest; below
    the rate of publishing they never catch up. Raises Refused when somebody else builds this read model already,
    CheckFailed when the new generation differs from the second refold, or cannot fold events that the old one could
    (unless ``allow_dead_letters``), Cancelled when ``cancel`` said so.
    """
    try:
        built = rebuild_together(
            [projection], stores, log,
            progress=None if progress is None else lambda name, told: progress(told), cancel=lambda name: cancel(),
            verify=verify, allow_dead_letters=allow_dead_letters, batch=batch, processes=processes,
            lease_ttl_s=lease_ttl_s, max_events_per_s=max_events_per_s,
        )  # fmt: skip
    except NotAllRebuilt as error:
        raise error.failures[projection.name] from None
    return built[projection.name]


def rollback(projection_name: str, stores: Stores, log: Database, projection: Projection | None = None) -> Generation:
    """Make the generation active again that was read before the present one, which is returned.

    Where the running code made it (``projection`` given and matching), it first catches up, so that no read goes back;
    otherwise it stands where it was left, and is stale. Raises Refused when there is none.
    """
    with lease(projection_name, log) as held:
        former = log.read_now(lambda conn: generations.previous(conn, projection_name))
        if former is None:
            raise Refused(f"{projection_name} has no earlier generation to go back to", code="no_generation")
        db = stores.generation(former.name)
        try:
            db.write_now(lambda conn: checkpoints.seal(conn, False))
            if projection is not None and former.matches(projection):
                build = Build(GenerationStore(projection, db), former, stores, log, held)
                build.claim(ArchiveSource(log))
                build.fold_to(log.read_now(queries.read_watermarks))
                return build.swap()
            return swap(former, stores, log, lambda vector: None, held.confirm)
        finally:
            db.close()


def drop_old(projection_name: str, stores: Stores, log: Database, *, keep: int = 1) -> list[Generation]:
    """Drop what failed or was cancelled, and what retired but the ``keep`` last ones; those that were dropped."""
    everything = log.read_now(lambda conn: generations.list_all(conn, projection_name))
    retired = sorted((g for g in everything if g.state == "retired"), key=lambda g: -(g.activated_ms or 0))
    dropped = retired[keep:] + [g for g in everything if g.state in ("failed", "cancelled")]
    for generation in dropped:
        drop(generation, stores, log)
    return dropped


def drop(generation: Generation, stores: Stores, log: Database) -> None:
    """Drop one generation with all its rows. Raises Refused for one that is read or being built."""
    log.write_now(partial(generations.retire_for_good, generation=generation))
    stores.drop_generation(generation.name)
