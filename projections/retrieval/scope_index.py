"""All cards of one scope in memory, ready to be scored: entries, words, values, vectors.

It is made from the rows of its scope alone, so nothing of another org, user or task has any part in a score, a count
or an order. A changed card is taken out and comes in again with a new number; ``wasteful`` tells when so many were
taken out that making the index anew is cheaper.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from events.event import Position
from projections.retrieval.entry import Entry, entry_of
from projections.retrieval.postings import Postings
from projections.retrieval.query import ACTIVE
from projections.retrieval.text import content_hash, passages
from projections.retrieval.vector_rows import VectorRows
from projections.retrieval.words import words

Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64]

_BYTES_AN_ENTRY = 1_200
_FEW = 256


class Seen(NamedTuple):
    """How far a partition was read: its checkpoint, and who owned it (what is repaired changes hands)."""

    position: Position
    owner_epoch: int


class Columns(NamedTuple):
    """One number a document: ``is_active`` by its status, ``as_of_s`` and ``ends_s`` in seconds since 1970.

    ``group`` is the same for cards of one session (of one run, where there is none), and below the number of documents.
    """

    alive: Flags
    is_active: Flags
    group: NDArray[np.int64]
    as_of_s: Numbers
    ends_s: Numbers
    value: Numbers
    uses: Numbers


class ScopeIndex:
    """Documents are numbered from 0; ``entries[number]`` is the card."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.seen: Mapping[int, Seen] = {}
        self.entries: list[Entry] = []
        self.words = Postings()
        self.values = Postings(0.0, 0.0)
        self.triggers = Postings(0.0, 0.0)
        self.vectors = VectorRows()
        self._numbers: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._group = array("I")
        self._alive = bytearray()
        self._active = bytearray()
        self._measures = tuple(array("d") for _ in range(4))

    def __len__(self) -> int:
        """Cards that are there."""
        return len(self._numbers)

    @property
    def wasteful(self) -> bool:
        """Whether more was taken out than is there."""
        return len(self.entries) - len(self) > max(_FEW, len(self))

    @property
    def bytes(self) -> int:
        """Memory it takes, roughly."""
        parts = (self.words, self.values, self.triggers, self.vectors)
        return len(self.entries) * _BYTES_AN_ENTRY + sum(part.bytes for part in parts)

    def put(self, row: Mapping[str, Any], uses: Sequence[tuple[str, str]] = ()) -> None:
        """Take in a row of ``cards``, for the first time or changed. ``uses``: id and name of what used it."""
        self.drop(row["card"])
        triggers = frozenset(word for _, name in uses for word in words(name))
        entry = entry_of(row, frozenset(used_by for used_by, _ in uses), triggers)
        texts = passages(row)
        number = self.words.add([word for text in texts for word in words(text)])
        self.values.add(entry.values)
        self.triggers.add(sorted(triggers))
        self.vectors.add([content_hash(text) for text in texts])
        self.entries.append(entry)
        self._numbers[entry.card] = number
        self._alive.append(True)
        self._active.append(entry.status == ACTIVE)
        self._group.append(self._groups.setdefault(_together(entry), len(self._groups)))
        for column, measure in zip(self._measures, _measures(entry), strict=True):
            column.append(measure)

    def drop(self, card: str) -> None:
        """Take a card out; nothing happens when it is not there."""
        number = self._numbers.pop(card, None)
        if number is not None:
            self._alive[number] = False

    def keep_of_partitions(self, partitions: Iterable[int], cards: Iterable[str]) -> None:
        """Take out what stands in these partitions but is none of ``cards``."""
        among, stay = frozenset(partitions), frozenset(cards)
        gone = [
            card
            for card, number in self._numbers.items()
            if self.entries[number].partition in among and card not in stay
        ]
        for card in gone:
            self.drop(card)

    def find(self, card: str) -> Entry | None:
        """The entry of a card, or None when the scope has none of this id."""
        number = self._numbers.get(card)
        return None if number is None else self.entries[number]

    def columns(self) -> Columns:
        """Copies of all columns, as they stand now."""
        alive, active = (np.array(column, dtype=np.bool_) for column in (self._alive, self._active))
        group = np.array(self._group, dtype=np.int64)
        return Columns(alive, active, group, *(np.array(column, dtype=np.float64) for column in self._measures))


def _together(entry: Entry) -> str:
    """What a card belongs to: its session, else its run, else itself."""
    if entry.session:
        return f"session/{entry.session}"
    return f"run/{entry.run}" if entry.run else f"card/{entry.card}"


def _measures(entry: Entry) -> tuple[float, float, float, float]:
    return entry.as_of_s, entry.ends_s(), float(entry.value), float(entry.uses)
