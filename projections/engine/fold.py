"""The fold of one batch in memory: pure, outside any transaction (DESIGN 5).

Events are applied in log order within their key; many events on one row leave one change. A row that was not named
ahead is a *fault*: ``apply`` is pure, so the event is simply run again once the row is loaded, and the other keys go on
meanwhile, so that all faults of a round cost one SELECT a table.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from events.archive.reader import Archived
from events.archive.schema import EFFECTIVE
from events.errors import NewerVersion, Transient
from events.event import Event, Position, Recorded
from events.strict_json import clean_text
from projections.engine.cache import UNKNOWN, RowCache
from projections.engine.shapes import RowKey, Shape, unread_tables
from projections.projection import Projection, Put, Row

PartitionKey = tuple[str, str]
"""(org, key) of events: what keeps its order, and what is parked."""


_NOT_THE_EVENT = (MemoryError, ImportError, OSError, Transient)
"""Failures of the machine, as far as one can see: they pause the projection, and park nothing at first."""

_NOT_THE_FOLD = (*_NOT_THE_EVENT, KeyboardInterrupt)
"""What is raised in a fold and is not its own: the machine's failures, and somebody who ends the process.

Everything else is, ``SystemExit`` too: an event must not end the process that folds all others.
"""


class Stumbled(Transient):
    """An event cannot be folded for want of memory, a file or a module: the machine's fault, or this event's."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.position = position


class Refusal(NamedTuple):
    """Why an event is parked without being folded: the cause of its dead letter, and its text."""

    cause: str
    error: str


ERROR_CHARS, TRACE_CHARS = 2_000, 20_000
"""Of an error's text, and of where it came from, that are kept: an event may have a name of a megabyte in it."""


class DeadLetter(NamedTuple):
    """An event that was not folded, and why; see ``tables.dead_letters``."""

    partition: int
    position: Position
    org: str
    key: str
    event_id: str
    type: str
    cause: str
    error: str
    traceback: str


@dataclass
class Folded:
    """What a batch comes to: rows to write (None: to delete), events that are parked, and how many were applied."""

    rows: dict[RowKey, Row | None] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    parked: dict[PartitionKey, Position] = field(default_factory=dict)
    applied: int = 0


@dataclass(slots=True)
class _Item:
    partition: int
    position: Position
    event: Event
    recorded: Recorded | None = None
    row_owner: str = ""
    failure: BaseException | None = None


class _Fault(BaseException):
    """A row is needed that is not in memory. No Exception, so that no handler inside ``apply`` can swallow it."""

    def __init__(self, name: RowKey) -> None:
        self.name = name


class Fold:
    """One batch of one partition. ``parked`` are the keys parked so far; it is read, not changed.

    ``load`` brings rows into the cache. ``refused`` are events to park unseen: processes died on them, or the store
    refuses their rows. ``blamed`` are those of which even a failure of the machine is their own.
    """

    def __init__(
        self,
        projection: Projection,
        shapes: dict[str, Shape],
        cache: RowCache,
        load: Callable[[Collection[RowKey]], None],
        parked: Collection[PartitionKey] = (),
        refused: Mapping[Position, Refusal] | None = None,
        blamed: Collection[Position] = (),
    ) -> None:
        self._projection = projection
        self._shapes = shapes
        self._cache = cache
        self._load = load
        self._parked = parked
        self._refused = refused or {}
        self._blamed = blamed
        self._result = Folded()
        self._unread = unread_tables(shapes)
        self._org = ""
        self._key = ""

    def run(self, batch: Iterable[Archived]) -> Folded:
        """Fold the batch. Raises Transient for what is not the events' fault, Stumbled when one event met it."""
        try:
            rest = self._items(batch)
            self._prefetch(rest)
            while rest:
                faults: set[RowKey] = set()
                rest = self._round(rest, faults)
                if faults:
                    self._load(faults)
        except Transient:
            raise
        except _NOT_THE_EVENT as error:
            raise Transient(f"folding {self._projection.name} failed: {error!r}") from error
        self._result.letters.sort(key=lambda letter: letter.position)
        return self._result

    def get(self, table: str, *pk: object) -> Row | None:
        """``Rows.get`` of the event being applied (see ``projections.projection.Rows``)."""
        if table in self._unread:
            raise KeyError(f"table {table!r} is unread: rows of it are put, never asked for")
        name = (table, self._org, self._key, *pk)
        row = self._result.rows.get(name, UNKNOWN)
        if row is UNKNOWN:
            row = self._cache.get(name)
        if row is UNKNOWN:
            if table not in self._shapes:
                raise KeyError(f"the projection has no table {table!r}")
            raise _Fault(name)
        return row

    def row_owners(self, batch: Iterable[Archived]) -> set[str]:
        """The keys that own the rows of these events."""
        return {item.row_owner for item in self._items(batch) if item.recorded is not None}

    def _items(self, batch: Iterable[Archived]) -> list[_Item]:
        handles = self._projection.handles
        return [self._item(each) for each in batch if each.type in handles and each.verdict == EFFECTIVE]

    def _item(self, archived: Archived) -> _Item:
        event = archived.event()
        item = _Item(archived.partition, archived.position, event)
        if item.position in self._refused or (event.org, event.key) in self._parked:
            return item  # not decoded: it is parked whatever it holds
        try:
            recorded = archived.recorded()
            item.row_owner = self._projection.key(recorded)
            item.recorded = recorded
        except _NOT_THE_FOLD as error:
            self._stumble(item, error)
        except BaseException as error:  # noqa: BLE001 - whatever an event makes decoding raise is its dead letter
            item.failure = error
        return item

    def _prefetch(self, items: Sequence[_Item]) -> None:
        if self._cache.complete:
            return
        names: set[RowKey] = set()
        for item in items:
            if item.recorded is not None:
                names.update(self._named(item, item.recorded))
        missing = self._cache.missing(names)
        if missing:
            self._load(missing)

    def _named(self, item: _Item, recorded: Recorded) -> list[RowKey]:
        try:
            return [
                (ref.table, item.event.org, item.row_owner, *ref.pk)
                for ref in self._projection.names(recorded)
                if ref.table in self._shapes
            ]
        except _NOT_THE_FOLD as error:
            self._stumble(item, error)
            return []
        except BaseException as error:  # noqa: BLE001 - as in _item
            item.failure = error
            return []

    def _round(self, items: Iterable[_Item], faults: set[RowKey]) -> list[_Item]:
        """Apply what can be applied with the rows at hand; the events that wait for a fault of their key."""
        waiting: list[_Item] = []
        blocked: set[PartitionKey] = set()
        result = self._result
        for item in items:
            owner = (item.event.org, item.event.key)
            if owner in blocked:
                waiting.append(item)
            elif owner in self._parked or owner in result.parked:
                self._park(item, "waiting", "an earlier event of this key is a dead letter")
            elif item.position in self._refused:
                self._park(item, *self._refused[item.position])
            elif item.failure is not None:
                self._park_failed(item, item.failure)
            elif item.recorded is not None and item.recorded.payload is not None:
                try:
                    result.rows.update(self._changes(item.event.org, item.row_owner, item.recorded))
                    result.applied += 1
                except _Fault as fault:
                    faults.add(fault.name)
                    blocked.add(owner)
                    waiting.append(item)
                except _NOT_THE_FOLD as error:
                    self._stumble(item, error)
                    self._park_failed(item, error)
                except BaseException as error:  # noqa: BLE001 - where whatever a fold raises is data: a dead letter
                    self._park_failed(item, error)
        return waiting

    def _changes(self, org: str, key: str, recorded: Recorded) -> dict[RowKey, Row | None]:
        """The event's changes, all or none of them: an ``apply`` that fails half-way has changed nothing."""
        self._org, self._key = org, key
        shapes = self._shapes
        changes: dict[RowKey, Row | None] = {}
        for change in self._projection.apply(recorded, self):
            shape = shapes[change[0]]
            if isinstance(change, Put):
                row = shape.checked(change[1])
                only = shape.only_pk  # the one column that most tables have there is read without a call
                name = (shape.name, org, key, *shape.pk_of(row)) if only is None else (shape.name, org, key, row[only])
                changes[name] = row
            else:
                changes[shape.name, org, key, *change.pk] = None
        return changes

    def _stumble(self, item: _Item, error: BaseException) -> None:
        """The failure of an event that is blamed for it; raises what is none."""
        if isinstance(error, KeyboardInterrupt | Transient):
            raise error
        if item.position not in self._blamed:
            raise Stumbled(f"folding {self._projection.name} failed: {error!r}", item.position) from error
        item.failure = error

    def _park_failed(self, item: _Item, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, NewerVersion):
            self._park(item, "newer_version", str(error), trace)
        elif isinstance(error, _NOT_THE_EVENT):
            self._park(item, "machine", f"{type(error).__name__}: {error}", trace)
        else:
            self._park(item, "poison", f"{type(error).__name__}: {error}", trace)

    def _park(self, item: _Item, cause: str, error: str, trace: str = "") -> None:
        event = item.event
        owner = (event.org, event.key)
        if owner not in self._parked:
            self._result.parked.setdefault(owner, item.position)
        self._result.letters.append(
            DeadLetter(
                item.partition, item.position, event.org, event.key, event.id, event.type, cause,
                clean_text(error[:ERROR_CHARS]), clean_text(trace[:TRACE_CHARS]),
            )
        )  # fmt: skip
