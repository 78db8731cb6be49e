"""Where the engine reads events from: the archive, up to its watermark, without a gap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from sqlalchemy import Connection

from events.archive import queries
from events.archive.reader import Archived, next_of
from events.database import Database
from events.errors import Transient
from events.event import START, Position

SCAN = 5000
"""Events a read when a whole partition is gone through."""


class LogGap(Transient):
    """The archive gave events that do not follow the checkpoint; nothing is folded until it does."""


class Source(Protocol):
    """The log of all partitions as the engine sees it. Blocking: it is called on worker threads."""

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """At most ``limit`` archived positions that follow ``after``, none past the watermark or ``upto``."""
        ...

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """The partition's epochs and the n each ended at, as ``next_of`` takes them."""
        ...

    @property
    def log(self) -> Database:
        """Where the archive is: for whoever makes a key anew from its own events."""
        ...


class ArchiveSource:
    """The archive in the log store."""

    def __init__(self, log: Database) -> None:
        self.log = log

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """As ``Source.read``; watermark and rows come from one snapshot."""

        def work(conn: Connection) -> Sequence[Archived]:
            mark = queries.read_watermarks(conn).get(partition, START)
            last = mark if upto is None else min(mark, upto)
            return queries.read_log(conn, partition, after, limit, last) if last > after else []

        return self.log.read_now(work)

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self.log.read_now(queries.read_epochs).get(partition, {})


class DenseReader:
    """Reads one partition and raises LogGap rather than pass over a position: the engine checks, not its source."""

    def __init__(self, source: Source, partition: int) -> None:
        self._source = source
        self._partition = partition
        self._epochs: Mapping[int, int | None] = {}

    def read(self, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """The next events after ``after``, each the one that must follow its predecessor."""
        batch = self._source.read(self._partition, after, limit, upto)
        if batch and not self._dense(after, batch):
            self._epochs = self._source.epochs(self._partition)
            if not self._dense(after, batch):
                raise LogGap(
                    f"partition {self._partition}: after {after} the archive gave {batch[0].position} to "
                    f"{batch[-1].position}, which leaves out or repeats positions"
                )
        return batch

    def at(self, positions: Sequence[Position]) -> list[Archived]:
        """The events at these positions, in this order; those that are not there are left out."""
        found: list[Archived] = []
        for epoch, n in positions:
            found += self._source.read(self._partition, Position(epoch, n - 1), 1, Position(epoch, n))
        return found

    def scan(self, upto: Position) -> Iterator[Archived]:
        """Every event of the partition from its first to ``upto``."""
        after = START
        while batch := self.read(after, SCAN, upto):
            yield from batch
            after = batch[-1].position

    def _dense(self, after: Position, batch: Sequence[Archived]) -> bool:
        epochs = self._epochs
        epoch, n = after
        for archived in batch:
            position = archived.position
            if position.epoch != epoch or position.n != n + 1 or n == epochs.get(epoch):
                try:
                    expected = next_of(Position(epoch, n), epochs)
                except ValueError:
                    return False
                if position != expected:
                    return False
            epoch, n = position
        return True


def lag(position: Position, mark: Position, epochs: Mapping[int, int | None]) -> int:
    """How many events follow ``position`` up to the watermark ``mark``."""
    if position.epoch == mark.epoch:
        return max(0, mark.n - position.n)
    if position > mark:
        return 0
    between = sum(end + 1 for epoch, end in epochs.items() if end is not None and position.epoch < epoch < mark.epoch)
    return (epochs.get(position.epoch, position.n) or 0) - position.n + between + mark.n + 1


def lags(
    marks: Mapping[int, Position],
    epochs: Mapping[int, Mapping[int, int | None]],
    vectors: Sequence[Mapping[int, Position]],
) -> dict[int, int]:
    """Events that each partition lags in the generation furthest behind; those that lag, the longest first."""
    behind = {
        partition: max((lag(vector[partition], mark, epochs.get(partition, {})) for vector in vectors), default=0)
        for partition, mark in marks.items()
    }
    return {partition: events for partition, events in sorted(behind.items(), key=lambda item: -item[1]) if events}
