"""Recorded runs folded in memory, event by event, as the engine folds them: what a context sees before a call.

Events come through the door, are folded by the projections themselves, and are read by the queries that the API uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import Connection

from events.archive.reader import Archived
from events.door import admit
from events.errors import Poison
from events.event import Event, Position
from projections.engine.cache import RowCache
from projections.engine.fold import Fold
from projections.engine.past import Past, in_memory
from projections.engine.shapes import shapes_of, unread_tables
from projections.engine.store import write_rows
from projections.projection import Projection

ORG = "bench"
_FIELDS = Event.__struct_fields__


class Folded:
    """One read model in memory. ``conn`` reads what is folded so far."""

    def __init__(self, projection: Projection, conn: Connection) -> None:
        self.conn = conn
        self._projection = projection
        self._shapes = shapes_of(projection)
        self._cache = RowCache(0, complete=True, unread=unread_tables(self._shapes))

    def fold(self, archived: Sequence[Archived]) -> None:
        """Fold events of a partition that follow those before."""
        folded = Fold(self._projection, self._shapes, self._cache, self._cache.learn_absent).run(archived)
        if folded.letters:
            raise Poison(f"{folded.letters[0].event_id} could not be folded: {folded.letters[0].error}")
        self._cache.learn(folded.rows)
        write_rows(self.conn, self._shapes, folded.rows)

    def forget(self) -> None:
        """Keys that are over need no rows in memory: those in the store stay."""
        self._cache = RowCache(0, complete=True, unread=unread_tables(self._shapes))


class Replica:
    """Read models of one partition, by name. Events that are added are folded when somebody reads."""

    def __init__(self, models: Mapping[str, Folded]) -> None:
        self._models = models
        self._waiting: dict[str, list[Archived]] = {name: [] for name in models}
        self._n = -1

    def add(self, raw: Mapping[str, Any]) -> Event:
        """The next event, through the door. Raises Refused."""
        event = admit(dict(raw), org=ORG)
        self._n += 1
        row = (0, 1, self._n, "effective", None, None, 0, *(getattr(event, name) for name in _FIELDS))
        for waiting in self._waiting.values():
            waiting.append(Archived(row))
        return event

    @property
    def position(self) -> Position:
        """Of the event that was added last."""
        return Position(1, self._n)

    def read(self, name: str) -> Connection:
        """A read model with every event in it that was added."""
        waiting, self._waiting[name] = self._waiting[name], []
        if waiting:
            self._models[name].fold(waiting)
        return self._models[name].conn

    def next_run(self) -> None:
        """The events that follow are of another task."""
        for name, model in self._models.items():
            self.read(name)
            model.forget()


@contextmanager
def replica(*projections: Projection) -> Iterator[Replica]:
    """A replica of some read models, empty."""
    with ExitStack() as stack:
        yield Replica({one.name: Folded(one, stack.enter_context(in_memory(Past(one)))) for one in projections})
