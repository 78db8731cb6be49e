"""Sources that give their last batch again, so that several readers of one partition read the log once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from threading import Lock

from events.archive.reader import Archived
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
        known = self._known(partition, after, limit, upto)
        if known:
            return known
        batch = self._source.read(partition, after, limit, upto)
        self._partition, self._after, self._batch = partition, after, batch
        return batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self._source.epochs(partition)

    def forget(self) -> None:
        """Keep the last batch no longer."""
        self._batch = ()

    def _known(self, partition: int, after: Position, limit: int, upto: Position | None) -> Sequence[Archived]:
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
    woken by the same events read them once. Who asks for what is being read waits for it.
    """

    def __init__(self, source: Source, most_chars: int = 4 << 20) -> None:
        self._source = source
        self._most_chars = most_chars
        self._partitions: dict[int, tuple[Lock, Remembering]] = {}

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """As ``Source.read``; of a batch that is remembered only in part, that part."""
        lock, memo = self._partitions.setdefault(partition, (Lock(), Remembering(self._source)))
        with lock:
            batch = memo.read(partition, after, limit, upto)
            if sum(archived.size for archived in batch) > self._most_chars:
                memo.forget()
        return batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self._source.epochs(partition)
