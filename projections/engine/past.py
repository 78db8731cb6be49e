"""A key as it stood at an earlier position: folded anew from its own events, by the same fold, into a store in memory.

What the live fold made of an event then counts now: its verdict, upcasters, discards up to the position, and events on
which a fold fails. An event that a later one discards was a dead letter then, and is one again; what folding in memory
cannot find out (an event that killed processes, say) is taken from the live generation's dead letters. So the state at
the position that a live generation has is the live one, row for row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple

from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.schema import CreateTable

from events.archive import queries
from events.archive.reader import Archived
from events.database import Database
from events.database_engines import sqlite
from events.errors import Transient
from events.event import START, Position
from projections.engine import tables
from projections.engine.cache import RowCache
from projections.engine.discards import REFUSAL
from projections.engine.fold import DeadLetter, Fold, PartitionKey, Refusal
from projections.engine.repair import DISCARDED, UNFOLDABLE, discard_of
from projections.engine.shapes import RowKey, Shape, shapes_of, unread_tables
from projections.engine.store import write_letters, write_rows
from projections.projection import Projection, Row

PAGE = 2_000
"""Events that are folded at once."""


@dataclass
class Past:
    """What a key came to: its rows, the events that could not be folded by then, and how many events were read."""

    projection: Projection
    rows: dict[RowKey, Row] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    events: int = 0


class _Discards(NamedTuple):
    before: Collection[Position]
    after: Mapping[Position, Refusal]


def fold_past(
    projection: Projection,
    log: Database,
    owner: PartitionKey,
    upto: Position,
    letters: Iterable[DeadLetter] = (),
    *,
    given_up: Callable[[], bool] = lambda: False,
) -> Past:
    """Fold the events of ``owner`` up to a position, in the caller's thread.

    ``letters`` are the live generation's dead letters of the key. Memory grows with the rows of the key, time with its
    events. Raises Transient when the machine fails, or the store, and when the caller has ``given_up``.
    """
    discards = log.read_now(lambda conn: _discards(conn, projection, owner, upto))
    refused = {one.position: Refusal(one.cause, one.error) for one in letters if one.cause in UNFOLDABLE}
    refused.update(discards.after)
    shapes = _shapes(projection)
    rows_at_hand = RowCache(0, complete=True, unread=unread_tables(shapes))
    past, parked = Past(projection), set[PartitionKey]()
    for page in _pages(log, owner, upto):
        if given_up():
            raise Transient("whoever asked has given up")
        fold = Fold(projection, shapes, rows_at_hand, rows_at_hand.learn_absent, parked, refused)
        folded = fold.run([archived for archived in page if archived.position not in discards.before])
        rows_at_hand.learn(folded.rows)
        for name, row in folded.rows.items():
            if row is None:
                past.rows.pop(name, None)
            else:
                past.rows[name] = row
        past.letters += folded.letters
        parked |= folded.parked.keys()
        past.events += len(page)
    return past


@contextmanager
def in_memory(past: Past) -> Iterator[Connection]:
    """A connection to the rows of a past, as a generation's: for the reads that the live one gets."""
    engine = create_engine("sqlite://", module=sqlite, poolclass=NullPool)
    with engine.connect() as conn:
        for statement in _definitions(past.projection):
            conn.exec_driver_sql(statement)
        write_rows(conn, _shapes(past.projection), past.rows)
        write_letters(conn, past.letters)
        yield conn


def _pages(log: Database, owner: PartitionKey, upto: Position) -> Iterator[list[Archived]]:
    org, key = owner
    after = START
    while page := log.read_now(partial(queries.read_key, org=org, key=key, after=after, limit=PAGE, upto=upto)):
        yield page
        after = page[-1].position


def _discards(conn: Connection, projection: Projection, owner: PartitionKey, upto: Position) -> _Discards:
    """The events up to a position that the key's discards leave out: those that had come by then, and later ones."""
    by_target: dict[tuple[str, str, str], Position] = {}
    for archived in queries.read_key_type(conn, *owner, DISCARDED):
        found = discard_of(projection, archived)
        if found is not None:
            by_target.setdefault((*owner, found[1]), archived.position)
    targets = queries.read_ids(conn, list(by_target))
    before, after = set[Position](), dict[Position, Refusal]()
    for identity, discard in by_target.items():
        target = targets.get(identity)
        if target is None or target.position > discard:
            continue
        if discard <= upto:
            before.add(target.position)
        else:
            after[target.position] = REFUSAL
    return _Discards(before, after)


@cache
def _shapes(projection: Projection) -> dict[str, Shape]:
    return shapes_of(projection)


@cache
def _definitions(projection: Projection) -> list[str]:
    wanted = (*projection.tables, tables.dead_letters)
    dialect = create_engine("sqlite://", module=sqlite).dialect
    return [str(CreateTable(table).compile(dialect=dialect)) for table in wanted]
