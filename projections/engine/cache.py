"""Rows of a partition as its owner knows them. Coherent, since a partition has one owner and its commits are fenced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from projections.engine.shapes import RowKey
from projections.projection import Row


class Unknown(Enum):
    """The cache cannot tell: ask the store."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class RowCache:
    """Committed rows by name, at most ``capacity`` of them between batches; the least recently written go first.

    ``complete`` says that every row there is stands here (the partition was empty when its owner began, and nothing
    was evicted): what is not here then needs no SELECT to be known absent. Rows of ``unread`` tables are never kept:
    nobody asks for them.
    """

    def __init__(self, capacity: int, *, complete: bool = False, unread: Collection[str] = ()) -> None:
        self.capacity = capacity
        self._unread = unread
        self.complete = complete
        self._rows: dict[RowKey, Row | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: RowKey) -> Row | Unknown | None:
        """The row, None when it is known to be absent, or UNKNOWN."""
        return self._rows.get(name, None if self.complete else UNKNOWN)

    def missing(self, names: Iterable[RowKey]) -> set[RowKey]:
        """Those of ``names`` that are UNKNOWN."""
        return set() if self.complete else {name for name in names if name not in self._rows}

    def learn(self, rows: Mapping[RowKey, Row | None]) -> None:
        """Take over what the store said, or what a commit has just written there (None: no such row)."""
        mine, unread = self._rows, self._unread
        for name, row in rows.items():
            if name[0] in unread:
                continue
            mine.pop(name, None)
            if row is not None or not self.complete:
                mine[name] = row

    def shrink(self) -> None:
        """Back to capacity. Called between batches only: a fold must not lose rows that it has asked for."""
        surplus = len(self._rows) - self.capacity
        if surplus > 0:
            for name in list(self._rows)[:surplus]:
                del self._rows[name]
            self.complete = False

    def forget(self, names: Iterable[RowKey]) -> None:
        """Rows that somebody else may have written."""
        self.complete = False
        for name in names:
            self._rows.pop(name, None)

    def learn_absent(self, names: Iterable[RowKey]) -> None:
        """These rows are known not to be there."""
        self.learn(dict.fromkeys(names))
