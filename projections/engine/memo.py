"""Sources that give their last batch again, so that several readers of one partition read the log once."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock

from events.archive.reader import Archived
from events.database import Database
from events.event import START, Position
from projections.engine.source import Source

_position = attrgetter("position")


class Remembering:
    """A source in front of another. For readers that take turns: one thread at a time.

    An event's payload is decoded once, too, since readers get the same ``Archived``.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._partition = -1
        self._after = START
        self._batch: Sequence[Archived] = ()

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """As ``Source.read``; of a batch that is remembered only in part, that part."""
        return self.known(partition, after, limit, upto) or self.fetch(partition, after, limit, upto)

    def fetch(self, partition: int, after: Position, limit: int, upto: Position | None) -> Sequence[Archived]:
        """The source's answer, remembered in place of the last one unless it is empty."""
        batch = self._source.read(partition, after, limit, upto)
        if batch:
            self._partition, self._after, self._batch = partition, after, batch
        return batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self._source.epochs(partition)

    @property
    def log(self) -> Database:
        """As ``Source.log``."""
        return self._source.log

    def forget(self) -> None:
        """Keep the last batch no longer."""
        self._batch = ()

    def known(self, partition: int, after: Position, limit: int, upto: Position | None) -> Sequence[Archived]:
        """What is remembered of the answer; nothing where that is not its beginning."""
        batch = self._batch
        if partition != self._partition or not batch or not self._after <= after < batch[-1].position:
            return ()
        first = 0 if after == self._after else bisect_right(batch, after, key=_position)
        if first and batch[first - 1].position != after:
            return ()  # not a place that a reader of this batch can be at
        last = len(batch) if upto is None else bisect_right(batch, upto, key=_position)
        last = min(last, first + limit)
        return batch if (first, last) == (0, len(batch)) else batch[first:last]


class Shared:
    """A source in front of another, for readers of any partitions on threads of their own.

    Of each partition the last batch is kept, unless its events hold more than ``most_chars`` of data: readers that are
    woken by the same events read them once. That nothing follows is kept, too, until ``moved`` is called, and for
    ``end_s`` at most. Who asks for what is being read waits for it.
    """

    def __init__(self, source: Source, end_s: float, most_chars: int = 4 << 20) -> None:
        self._source = source
        self._end_s = end_s
        self._most_chars = most_chars
        self._partitions: dict[int, _Kept] = {}

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """As ``Source.read``; of a batch that is remembered only in part, that part."""
        kept = self._kept(partition)
        with kept.lock:
            if upto is None and kept.ends_at(after):
                return ()
            batch = kept.memo.known(partition, after, limit, upto)
            if not batch:
                moves = kept.moves  # what moves while we read is not in what we read
                batch = kept.memo.fetch(partition, after, limit, upto)
                if upto is None and len(batch) < limit:
                    kept.end = batch[-1].position if batch else after
                    kept.end_moves, kept.end_until_s = moves, time.monotonic() + self._end_s
                if sum(archived.size for archived in batch) > self._most_chars:
                    kept.memo.forget()
        return batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self._source.epochs(partition)

    @property
    def log(self) -> Database:
        """As ``Source.log``."""
        return self._source.log

    def moved(self, partition: int) -> None:
        """The partition goes on from where it ended. Never blocks."""
        self._kept(partition).moves += 1

    def _kept(self, partition: int) -> _Kept:
        kept = self._partitions.get(partition)
        # at once, since threads may come first together
        return kept or self._partitions.setdefault(partition, _Kept(Remembering(self._source)))


@dataclass
class _Kept:
    """What is remembered of a partition: the last batch, and where it ended after so many moves."""

    memo: Remembering
    lock: Lock = field(default_factory=Lock)
    moves: int = 0
    end: Position | None = None
    end_moves: int = 0
    end_until_s: float = 0.0

    def ends_at(self, position: Position) -> bool:
        """Whether nothing follows."""
        return self.end == position and self.end_moves == self.moves and time.monotonic() < self.end_until_s
