"""Tables that a fold only writes: their rows are stored like any others, and none is kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Text, select

from events.event import Recorded
from projections.engine.cache import RowCache
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore, read_letters
from projections.projection import Change, Drop, Projection, Put, RowRef, Rows, read_model_table
from tests.contracts.engine_lab import PARTITIONS, Lab, lab_in, note, where

_metadata = MetaData()
HEADS = read_model_table(_metadata, "heads", Column("events", BigInteger))
RING = read_model_table(
    _metadata, "ring", Column("slot", BigInteger, primary_key=True), Column("text", Text), unread=True
)


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """The last three notes of a task, in a ring."""
    head = rows.get("heads")
    events = head["events"] if head else 0
    if recorded.payload.key == "ask":
        rows.get("ring", 0)
    if recorded.payload.key == "drop":
        yield Drop("ring", (recorded.payload.content,))
    else:
        yield Put("ring", {"slot": events % 3, "text": str(recorded.payload.content)})
    yield Put("heads", {"events": events + 1})


def names(recorded: Recorded) -> Iterable[RowRef]:
    return (RowRef("heads"), RowRef("ring", (0,)))


LATEST = Projection("latest", 1, (HEADS, RING), frozenset({"note.written"}), apply, names)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = lab_in(tmp_path)
    yield lab
    lab.log.close()


@contextmanager
def folded(lab: Lab, batch: int) -> Iterator[tuple[GenerationStore, PartitionFolder]]:
    store = GenerationStore(LATEST, lab.stores.generation(f"latest__g{batch}"))
    store.create(PARTITIONS)
    folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), where("t1"), "test", batch=batch)
    while folder.step().read:
        pass
    yield store, folder
    store.db.close()


def texts(store: GenerationStore) -> list[Any]:
    return store.db.read_now(lambda conn: list(conn.execute(select(RING.c.slot, RING.c.text).order_by(RING.c.slot))))


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_rows_are_stored_and_forgotten(lab: Lab, batch: int) -> None:
    lab.archive(*(note(f"e{i}", "t1", "n", i) for i in range(7)), note("e7", "t1", "drop", 0))
    with folded(lab, batch) as (store, folder):
        assert texts(store) == [(1, "4"), (2, "5")]
        kept = folder._cache
        assert isinstance(kept, RowCache)
        assert {name[0] for name in kept._rows} == {"heads"}


def test_a_fold_that_asks_for_one_is_at_fault(lab: Lab) -> None:
    """Whatever the cache holds just then: the answer must not depend on where batches end."""
    lab.archive(note("e0", "t1", "n", 0), note("e1", "t1", "ask", 1))
    for batch in (1, 2):
        with folded(lab, batch) as (store, _):
            (letter,) = store.db.read_now(lambda conn: read_letters(conn, ("default", "task/t1")))
            assert (letter.event_id, letter.cause) == ("e1", "poison")
            assert "'ring' is unread" in letter.error
            assert texts(store) == [(0, "0")]
