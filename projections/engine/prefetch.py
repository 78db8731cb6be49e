"""Reads the next batch while the present one is folded: for whoever goes through much of the log at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from events.archive.reader import Archived
from events.database import Database
from events.event import Position
from projections.engine.source import Source

_Wanted = tuple[int, Position, int, Position | None]


class Prefetching:
    """A source that expects to be asked for what follows its last answer. For one reader."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._ahead: tuple[_Wanted, Future[Sequence[Archived]]] | None = None

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        """As ``Source.read``."""
        wanted = (partition, after, limit, upto)
        ahead, self._ahead = self._ahead, None
        batch = ahead[1].result() if ahead is not None and ahead[0] == wanted else self._source.read(*wanted)
        if len(batch) == limit:
            following = (partition, batch[-1].position, limit, upto)
            self._ahead = (following, self._executor.submit(self._source.read, *following))
        return batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        """As ``Source.epochs``."""
        return self._source.epochs(partition)

    @property
    def log(self) -> Database:
        """As ``Source.log``."""
        return self._source.log

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)
