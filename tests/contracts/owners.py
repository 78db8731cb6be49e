"""A partition's life as chance has it: owners come, go, crash and wake again, with batches and caches of any size."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from sqlalchemy import select

from events.archive import queries
from events.archive.reader import Archived
from events.database import Database
from events.errors import Fenced
from events.event import START, Event
from projections.engine import tables
from projections.engine.folder import PartitionFolder
from projections.engine.prefetch import Prefetching
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Projection
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.contracts.naive import Dump


class Owners:
    """The owners of one generation. Whatever they do, the rows must be those of its log."""

    def __init__(self, lab: Lab, store: GenerationStore, dice: random.Random) -> None:
        self._lab, self.store, self._dice = lab, store, dice
        self._folders: dict[int, PartitionFolder] = {}
        self._zombies: list[PartitionFolder] = []
        self._sources: list[Prefetching] = []
        self._taken = 0

    def act(self) -> None:
        """One thing happens to one partition."""
        partition = self._dice.randrange(PARTITIONS)
        match self._dice.choice(("step", "step", "step", "hand over", "crash", "wake")):
            case "step":
                self._owner(partition).step()
            case "hand over" if partition in self._folders:
                self._folders.pop(partition).hand_over()
            case "crash" if partition in self._folders:
                self._zombies.append(self._folders.pop(partition))
                self._owner(partition)  # its successor takes over at once
            case "wake" if self._zombies:
                zombie = self._zombies.pop(self._dice.randrange(len(self._zombies)))
                wake(zombie)

    def finish(self) -> None:
        """Everybody folds what is left; then the zombies wake."""
        for partition in range(PARTITIONS):
            while self._owner(partition).step().read:
                pass
        for zombie in self._zombies:
            wake(zombie)
        for source in self._sources:
            source.close()

    def _owner(self, partition: int) -> PartitionFolder:
        if partition not in self._folders:
            dice = self._dice
            source = ArchiveSource(self._lab.log)
            prefetching = Prefetching(source) if dice.random() < 0.2 else None
            if prefetching is not None:
                self._sources.append(prefetching)
            self._taken += 1
            self._folders[partition] = PartitionFolder.take_over(
                self.store, prefetching or source, partition, f"owner {self._taken}",
                batch=dice.choice((1, 2, 3, 7, 50)), cache_rows=dice.choice((0, 1, 5, 1000)),
            )  # fmt: skip
        return self._folders[partition]


def wake(zombie: PartitionFolder) -> None:
    """A former owner goes on where it was: it may find nothing to do, but must not commit."""
    try:
        read = zombie.step().read
    except Fenced:
        return
    assert not read, "a former owner committed"


def live_together(
    lab: Lab, projections: Iterable[Projection], events: Sequence[Event], dice: random.Random
) -> list[Owners]:
    """Archive the events bit by bit while owners fold them; all of it is folded when this returns."""
    everybody = []
    for projection in projections:
        store = GenerationStore(projection, lab.stores.generation(f"{projection.name}__live"))
        store.create(PARTITIONS)
        everybody.append(Owners(lab, store, dice))
    waiting = list(events)
    while waiting:
        size = dice.choice((1, 3, 10, 40))
        lab.archive(*waiting[:size])
        del waiting[:size]
        for owners in everybody:
            for _ in range(dice.randrange(4)):
                owners.act()
    for owners in everybody:
        owners.finish()
    return everybody


def whole_log(log: Database) -> list[Archived]:
    """The archive, partition by partition."""
    return log.read_now(lambda conn: [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 10**6)])


def dump_of(db: Database, projection: Projection) -> Dump:
    """A generation in the form of the naive fold."""
    letters, parked = tables.dead_letters.c, tables.parked_keys.c

    def rows(query: object, conn: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in conn.execute(query)]  # type: ignore[attr-defined]

    return db.read_now(
        lambda conn: (
            {
                "dead_letters": sorted(
                    rows(select(letters.partition, letters.epoch, letters.n, letters.event_id, letters.cause), conn)
                ),
                "parked": sorted(rows(select(parked.org, parked.key, parked.partition, parked.epoch, parked.n), conn)),
            }
            | {str(table.name): sorted(rows(select(table), conn), key=repr) for table in projection.tables}
        )
    )
