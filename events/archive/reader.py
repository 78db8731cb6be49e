"""The archive as its readers see it: what ``queries`` answer, off the event loop.

Tenants are walls: every read by a name takes the org that owns it. Reading by position is for the engine and admins.
"""

from __future__ import annotations

from collections.abc import Sequence

from events.archive import queries, store
from events.archive.queries import Archived, RunSummary, Verdict, Verdicted
from events.archive.store import First, next_of
from events.database import Database
from events.event import Position

__all__ = ["Archive", "Archived", "First", "RunSummary", "Verdict", "Verdicted", "next_of"]


class Archive:
    """The archive of a log store. All methods read one snapshot each, and raise Transient as ``Database`` does.

    Also what append asks (``History``): ids, attempts and sequence numbers that the log's window has forgotten.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    async def log_id(self) -> str:
        """The identity of the log. Raises SetupError when it was never opened."""
        return await self._db.read(store.log_id)

    async def watermarks(self) -> dict[int, Position]:
        """The last archived position of each partition."""
        return await self._db.read(queries.read_watermarks)

    async def epochs(self) -> dict[int, dict[int, int | None]]:
        """For each partition its epochs and the n that each ended at (None: open); what ``next_of`` takes."""
        return await self._db.read(queries.read_epochs)

    async def count(self) -> int:
        """How many positions the archive holds, over all partitions and orgs. For admins."""
        return await self._db.read(queries.count_events)

    async def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> list[Archived]:
        """At most ``limit`` positions that follow ``after``, in order, none past ``upto``; whatever their verdict."""
        return await self._db.read(lambda conn: queries.read_log(conn, partition, after, limit, upto))

    async def verdicts(self, partition: int, positions: Sequence[Position]) -> dict[Position, Verdicted]:
        """The verdicts of those positions that are archived."""
        return await self._db.read(lambda conn: queries.read_verdicts(conn, partition, positions))

    async def run_events(
        self, org: str, run: str, *, after: tuple[int, Position] | None = None, limit: int = 1000
    ) -> list[Archived]:
        """The events of a run by partition and position; ``after`` is the last one of the page before."""
        return await self._db.read(lambda conn: queries.read_run(conn, org, run, after, limit))

    async def key_events(self, org: str, key: str, after: Position, limit: int = 1000) -> list[Archived]:
        """The events of a partition key that follow ``after``, in order; whatever their verdict."""
        return await self._db.read(lambda conn: queries.read_key(conn, org, key, after, limit))

    async def key_events_of_type(self, org: str, key: str, type: str) -> list[Archived]:
        """The effective events of a type and a partition key, in order. Goes through all events of the key."""
        return await self._db.read(lambda conn: queries.read_key_type(conn, org, key, type))

    async def runs(self, org: str, *, limit: int = 50, task: str | None = None) -> list[RunSummary]:
        """The runs of an org (of one task) that started last, the newest first."""
        return await self._db.read(lambda conn: queries.read_runs(conn, org, limit, task))

    async def ids(self, partition: int, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], First]:
        """Where events stand first, by (org, key, id); those never archived are absent."""
        return await self._db.read(lambda conn: queries.read_ids(conn, wanted))

    async def tasks(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[tuple[int, str]]]:
        """The attempts of tasks, by (org, task): (attempt, run), in order; tasks never started are absent."""
        return await self._db.read(lambda conn: queries.read_attempts(conn, wanted))

    async def last_seqs(self, wanted: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
        """The highest ``seq`` of runs, by (org, task, run); runs without one are absent."""
        return await self._db.read(lambda conn: queries.read_last_seqs(conn, wanted))
