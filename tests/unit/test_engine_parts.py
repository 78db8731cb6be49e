"""The engine's pure parts: rows as they are stored, the cache's bounds, the fold, density, lag, shares, the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, Text

from events.archive.queries import Archived
from events.database import Database
from events.errors import SetupError, Transient
from events.event import START, Event, Position
from projections.engine.cache import UNKNOWN, RowCache
from projections.engine.fold import Fold, Folded, Refusal
from projections.engine.gate import Gate
from projections.engine.ownership import fair_share
from projections.engine.shapes import RowKey, Shape, shapes_of
from projections.engine.source import DenseReader, LogGap, lag, lags
from projections.fingerprint import fingerprint
from projections.projection import Drop, Projection, Put, RowRef, read_model_table
from tests.contracts.engine_lab import NOTES, TALLIES, TOY, note

# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"events": 2**63}, "9223372036854775807"),
        ({"events": True}, "got `bool`"),
        ({"events": 1.0}, "got `float`"),
        ({"even": 1}, "got `int`"),
        ({"last": b"x"}, "got `bytes`"),
        ({"total": float("nan")}, "no finite number"),
        ({"total": float("inf")}, "no finite number"),
        ({"totals": 1}, "no column 'totals'"),
    ],
)
def test_a_row_that_a_store_would_change_or_refuse_is_an_error(row: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Shape(TALLIES).checked(row)


def test_a_primary_key_is_never_null() -> None:
    with pytest.raises(ValueError, match="name"):
        Shape(NOTES).checked({"content": 1})


def test_rows_take_their_stored_form() -> None:
    row = Shape(TALLIES).checked({"total": -0.0, "events": -(2**63)})
    assert row == {"events": -(2**63), "total": 0.0, "even": None, "last": None, "recent": None}
    assert str(row["total"]) == "0.0", "SQLite keeps no negative zero"
    assert type(Shape(TALLIES).checked({"total": 3})["total"]) is float


def test_strict_rows_are_what_their_text_reads() -> None:
    assert Shape(NOTES, strict=True).checked({"name": "a", "content": (1, {"b": 2})})["content"] == [1, {"b": 2}]


def test_tables_that_stores_would_not_agree_on_are_refused() -> None:
    with pytest.raises(SetupError, match="Text, BigInteger"):
        Shape(read_model_table(MetaData(), "t", Column("a", Integer)))
    with pytest.raises(SetupError, match="org and key"):
        Shape(Table("t", MetaData(), Column("a", Text, primary_key=True)))
    taken = Projection("p", 1, (read_model_table(MetaData(), "checkpoints"),), frozenset(), TOY.apply)
    with pytest.raises(SetupError, match="the engine's"):
        fingerprint(taken)
    with pytest.raises(SetupError, match=r"no\.such"):
        fingerprint(Projection("p", 1, TOY.tables, frozenset({"no.such"}), TOY.apply))


# -- cache ------------------------------------------------------------------------------------------------------------


def test_a_complete_cache_knows_what_is_absent_until_it_forgets_something() -> None:
    cache = RowCache(2, complete=True)
    assert cache.get(("t", "o", "k")) is None
    cache.learn({("t", "o", str(i)): {} for i in range(3)})
    assert len(cache) == 3, "a fold keeps what it asked for"
    cache.shrink()
    assert len(cache) == 2
    assert cache.get(("t", "o", "0")) is UNKNOWN
    assert cache.get(("t", "o", "2")) == {}


def test_an_incomplete_cache_remembers_absence() -> None:
    cache = RowCache(9)
    assert cache.missing([("t", "o", "k")]) == {("t", "o", "k")}
    cache.learn({("t", "o", "k"): None})
    assert cache.missing([("t", "o", "k")]) == set()
    assert cache.get(("t", "o", "k")) is None


def test_the_least_recently_written_rows_go_first() -> None:
    cache = RowCache(2)
    cache.learn({("a",): {}, ("b",): {}, ("c",): {}})
    cache.learn({("a",): {"new": 1}})
    cache.shrink()
    assert cache.missing([("a",), ("b",), ("c",)]) == {("b",)}


# -- fold -------------------------------------------------------------------------------------------------------------


def archived(n: int, event: Event, verdict: str = "effective") -> Archived:
    fields = [getattr(event, name) for name in Event.__struct_fields__]
    return Archived((0, 1, n, verdict, None, None, 0, *fields))


class Memory:
    """A store in memory that counts how often it is asked."""

    def __init__(self, cache: RowCache, rows: Mapping[RowKey, Any] | None = None) -> None:
        self.cache = cache
        self.rows = dict(rows or {})
        self.loads = 0

    def load(self, names: Collection[RowKey]) -> None:
        self.loads += 1
        self.cache.learn({name: self.rows.get(name) for name in names})


def run(events: Sequence[Event], memory: Memory, projection: Projection = TOY, **options: Any) -> Folded:
    fold = Fold(projection, shapes_of(projection), memory.cache, memory.load, **options)
    return fold.run([archived(n, event) for n, event in enumerate(events)])


def test_a_fold_run_twice_is_the_same() -> None:
    events = [note(f"e{i}", f"t{i % 3}", f"n{i % 2}", {"copy": "n0"}) for i in range(20)]
    first, second = (run(events, Memory(RowCache(99))) for _ in range(2))
    assert first == second
    assert run(events, Memory(RowCache(99, complete=True))).rows == first.rows


def test_named_rows_cost_one_load_and_faults_of_all_keys_one_more() -> None:
    events = [note(f"e{i}", f"t{i % 9}", "a", {"copy": "b"}) for i in range(90)]
    memory = Memory(RowCache(99))
    assert run(events, memory).applied == 90
    assert memory.loads == 2


def test_what_follows_a_fault_waits_for_it() -> None:
    """Only the first event of the key needs a row that nobody named; the second must not overtake it."""
    events = [note("e1", "t", "a", {"copy": "b"}), note("e2", "t", "a", 2), note("f1", "u", "a", 1)]
    folded = run(events, Memory(RowCache(99)))
    assert folded.rows == run(events, Memory(RowCache(99, complete=True))).rows
    assert folded.rows[("tallies", "default", "task/t")]["recent"] == ["e1", "e2"]  # type: ignore[index]


def test_many_events_on_a_row_leave_one_change() -> None:
    folded = run([note(f"e{i}", "t", "a", i) for i in range(50)], Memory(RowCache(9, complete=True)))
    assert sorted(name[0] for name in folded.rows) == ["notes", "tallies"]
    assert folded.rows[("notes", "default", "task/t", "a")] == {"name": "a", "content": 49, "version": 50}


def test_a_fault_cannot_be_swallowed_by_the_projection() -> None:
    def apply(recorded: Any, rows: Any) -> Iterable[Any]:
        try:
            old = rows.get("notes", "a")
        except Exception:  # noqa: BLE001 - that is what is tested
            return [Drop("notes", ("a",))]
        return [Put("notes", {"name": "a", "content": old, "version": 1})]

    projection = Projection("p", 1, TOY.tables, TOY.handles, apply)
    name = ("notes", "default", "task/t", "a")
    memory = Memory(RowCache(9), {name: {"name": "a", "content": 1, "version": 1}})
    folded = run([note("e1", "t", "a")], memory, projection)
    assert folded.rows[name] == {"name": "a", "content": {"name": "a", "content": 1, "version": 1}, "version": 1}


def test_keys_of_two_orgs_are_two_keys() -> None:
    """The same task name in another org is parked, or not, on its own."""
    events = [note("e1", "t", "poison", org="a"), note("e2", "t", "x", org="b"), note("e3", "t", "x", org="a")]
    folded = run(events, Memory(RowCache(9, complete=True)))
    assert [(letter.org, letter.cause) for letter in folded.letters] == [("a", "poison"), ("a", "waiting")]
    assert {name[1] for name in folded.rows} == {"b"}


def test_refused_events_are_not_even_decoded() -> None:
    refused = {Position(1, 0): Refusal("killed", "three times")}
    folded = run([note("e1", "t", "a"), note("e2", "t", "a")], Memory(RowCache(9, complete=True)), refused=refused)
    assert [(letter.event_id, letter.cause, letter.error) for letter in folded.letters] == [
        ("e1", "killed", "three times"),
        ("e2", "waiting", "an earlier event of this key is a dead letter"),
    ]


def test_names_that_fail_are_the_events_fault_and_a_full_memory_is_not() -> None:
    def names(recorded: Any) -> Iterable[RowRef]:
        raise MemoryError if recorded.payload.content == "memory" else LookupError("no such name")

    projection = Projection("p", 1, TOY.tables, TOY.handles, TOY.apply, names)
    folded = run([note("e1", "t", "a")], Memory(RowCache(9)), projection)
    assert folded.letters[0].error == "LookupError: no such name"

    def long(recorded: Any) -> Iterable[RowRef]:
        raise LookupError("x" * 1_000_000)

    letter = run([note("e1", "t", "a")], Memory(RowCache(9)), replace(projection, names=long)).letters[0]
    assert (len(letter.error), letter.error[:14]) == (2_000, "LookupError: x")
    assert len(letter.traceback) == 20_000 and letter.traceback.startswith("Traceback")
    with pytest.raises(Transient, match="MemoryError"):
        run([note("e1", "t", "a", "memory")], Memory(RowCache(9)), projection)


# -- density ----------------------------------------------------------------------------------------------------------


class Fixed:
    """A source that answers the same whatever it is asked."""

    def __init__(self, positions: Sequence[tuple[int, int]], epochs: Mapping[int, int | None]) -> None:
        self._batch = [Archived((0, epoch, n)) for epoch, n in positions]
        self._epochs = epochs

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        return self._batch

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        return self._epochs

    @property
    def log(self) -> Database:
        raise NotImplementedError("nothing is erased here")


EPOCHS = {0: -1, 1: 2, 2: -1, 3: None}


@pytest.mark.parametrize(
    ("after", "positions"),
    [
        (START, [(1, 0), (1, 1), (1, 2), (3, 0)]),
        (Position(1, 1), [(1, 2), (3, 0), (3, 1)]),
        (Position(1, 2), [(3, 0)]),
        (Position(3, 5), [(3, 6)]),
    ],
)
def test_dense_positions_are_read(after: Position, positions: list[tuple[int, int]]) -> None:
    reader = DenseReader(Fixed(positions, EPOCHS), 0)
    assert [each.position for each in reader.read(after, 9)] == positions


@pytest.mark.parametrize(
    ("after", "positions"),
    [
        (START, [(1, 1)]),
        (START, [(3, 0)]),
        (Position(1, 1), [(1, 3)]),
        (Position(1, 1), [(3, 0)]),
        (Position(3, 5), [(3, 5)]),
        (Position(3, 5), [(3, 6), (3, 8)]),
        (Position(3, 5), [(4, 0)]),
        (Position(1, 5), [(3, 0)]),
    ],
)
def test_anything_else_is_a_gap(after: Position, positions: list[tuple[int, int]]) -> None:
    with pytest.raises(LogGap):
        DenseReader(Fixed(positions, EPOCHS), 0).read(after, 9)


@pytest.mark.parametrize(
    ("position", "mark", "events"),
    [
        (START, START, 0),
        (START, Position(1, 2), 3),
        (Position(1, 0), Position(1, 2), 2),
        (Position(1, 0), Position(3, 4), 7),
        (Position(1, 2), Position(2, -1), 0),
        (START, Position(3, -1), 3),
        (Position(3, 4), Position(3, 2), 0),
    ],
)
def test_lag_counts_events_over_epochs(position: Position, mark: Position, events: int) -> None:
    assert lag(position, mark, EPOCHS) == events


# -- sharing ----------------------------------------------------------------------------------------------------------


@given(partitions=st.integers(1, 64), workers=st.integers(1, 80))
def test_fair_shares_cover_all_partitions(partitions: int, workers: int) -> None:
    share = fair_share(partitions, workers)
    assert share * workers >= partitions
    assert (share - 1) * workers < partitions


@given(sizes=st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_rebuild_begins_with_the_partition_that_lags_most_and_leaves_out_what_does_not(
    sizes: list[list[int]],
) -> None:
    """``sizes`` are how far each generation stands in each partition, of 50 events."""
    marks = {p: Position(1, 49) for p in range(3)}
    epochs: dict[int, dict[int, int | None]] = {p: {0: -1, 1: None} for p in marks}
    behind = lags(marks, epochs, [{p: Position(1, n - 1) for p, n in enumerate(each)} for each in sizes])
    worst = {p: 50 - min(each[p] for each in sizes) for p in marks}
    assert behind == {p: events for p, events in worst.items() if events}
    assert list(behind.values()) == sorted(behind.values(), reverse=True)


def test_alone_means_alone() -> None:
    async def scenario() -> list[str]:
        gate, log = Gate(), list[str]()

        async def work(name: str, alone: bool) -> None:
            async with gate.alone() if alone else gate.shared():
                log.append(f"+{name}")
                await asyncio.sleep(0.01)
                log.append(f"-{name}")

        await asyncio.gather(work("a", False), work("b", False), work("X", True), work("c", False), work("Y", True))
        return log

    log = asyncio.run(scenario())
    for name in "XY":
        begin = log.index(f"+{name}")
        assert log[begin + 1] == f"-{name}"
        inside = sum(1 if entry[0] == "+" else -1 for entry in log[:begin])
        assert inside == 0
    assert log.index("+b") < log.index("-a"), "others do run side by side"
