"""The parts of a rebuild, without stores: its pace, the remembered batch, and who goes first in lockstep."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.archive.queries import Archived
from events.database import Database
from events.errors import Transient
from events.event import START, Event, Position
from projections.engine.cores import cores
from projections.engine.folder import PartitionFolder, Step
from projections.engine.lockstep import Lockstep
from projections.engine.memo import Remembering, Shared
from projections.engine.pace import Pace
from tests.contracts.engine_lab import note

SIZE = 40


def entry(n: int) -> Archived:
    event = note(f"e{n}", "t", "a", n)
    return Archived((0, 1, n, "effective", None, None, 0, *(getattr(event, name) for name in Event.__struct_fields__)))


class Log:
    """A source of one partition with SIZE positions that tells what it was asked for."""

    def __init__(self) -> None:
        self.entries = [entry(n) for n in range(SIZE)]
        self.given: list[int] = []

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        wanted = [e for e in self.entries if e.position > after and (upto is None or e.position <= upto)][:limit]
        self.given += [e.position.n for e in wanted]
        return wanted

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        return {0: -1, 1: None}

    @property
    def log(self) -> Database:
        raise NotImplementedError("nothing is erased here")


class Folder:
    """Stands for a PartitionFolder: takes what ``sizes`` say, and reads it from the source."""

    def __init__(self, source: Any, position: Position, batch: int, cuts: frozenset[int] = frozenset()) -> None:
        self.source, self.position, self.batch, self.cuts = source, position, batch, cuts
        self.seen: list[Archived] = []

    def step(self, upto: Position) -> Step:
        batch = self.source.read(0, self.position, self.batch, upto)
        for index, archived in enumerate(batch):
            if index and archived.position.n in self.cuts:  # as at a discard, which is taken alone
                batch = batch[:index]
                break
        self.seen += batch
        if batch:
            self.position = batch[-1].position
        return Step(len(batch), len(batch), self.position)


def at(n: int) -> Position:
    return Position(1, n - 1) if n else START


def in_step(folders: Mapping[str, Folder]) -> Lockstep:
    return Lockstep(cast("Mapping[str, PartitionFolder]", folders))


# -- lockstep ---------------------------------------------------------------------------------------------------------


@given(
    starts=st.lists(st.integers(0, SIZE), min_size=1, max_size=4),
    batch=st.integers(1, 15),
    cuts=st.frozensets(st.integers(0, SIZE), max_size=5),
    upto=st.integers(1, SIZE),
)
def test_all_get_where_they_are_to_be_and_see_each_event_once(
    starts: list[int], batch: int, cuts: frozenset[int], upto: int
) -> None:
    """Wherever they begin, and wherever one of them stops short."""
    log = Log()
    source = Remembering(log)
    folders = {
        str(i): Folder(source, at(start), batch, cuts if i % 2 else frozenset()) for i, start in enumerate(starts)
    }
    lockstep = in_step(folders)
    while lockstep.step(at(upto)):
        pass
    for folder, start in zip(folders.values(), starts, strict=True):
        assert [archived.position.n for archived in folder.seen] == list(range(start, upto))
    by_n: dict[int, set[int]] = {}
    for folder in folders.values():
        for archived in folder.seen:
            by_n.setdefault(archived.position.n, set()).add(id(archived))
    if not cuts:
        assert sorted(log.given) == sorted(set(log.given)), "each event is read once"
        assert all(len(objects) == 1 for objects in by_n.values()), "and it is the same object for all"


def test_one_that_fails_is_left_behind() -> None:
    class Failing(Folder):
        def step(self, upto: Position) -> Step:
            if self.position >= at(10):
                raise Transient("no more")
            return super().step(upto)

    source = Remembering(Log())
    folders = {"a": Failing(source, START, 5), "b": Folder(source, START, 5)}
    lockstep = in_step(folders)
    while lockstep.step(at(SIZE)):
        pass
    assert (folders["a"].position, folders["b"].position) == (at(10), at(SIZE))
    assert str(lockstep.failed["a"]) == "no more"
    assert list(lockstep.folders) == ["b"]


# -- the remembered batch ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(1, 12), st.none() | st.integers(0, SIZE)), max_size=12))
def test_what_is_remembered_is_what_the_log_says(asked: list[tuple[int, int, int | None]]) -> None:
    """Any sequence of questions gets the events that follow; of what is known in part, that part, but never nothing."""
    log = Log()
    source = Remembering(log)
    for after, limit, upto in asked:
        last = None if upto is None else at(upto)
        found = [archived.position.n for archived in source.read(0, at(after), limit, last)]
        true = list(range(after, min(SIZE if upto is None else upto, after + limit)))
        assert found == true[: len(found)]
        assert bool(found) == bool(true)
    assert log.epochs(0) == source.epochs(0)


def test_another_partition_is_another_question() -> None:
    log = Log()
    source = Remembering(log)
    source.read(0, START, 5)
    source.read(1, START, 5)
    assert log.given == [0, 1, 2, 3, 4] * 2


def test_readers_on_threads_share_what_one_of_them_reads() -> None:
    log = Log()
    source = Shared(log, 60)
    with ThreadPoolExecutor(8) as threads:
        for after in range(0, SIZE, 5):
            batches = list(threads.map(lambda _, after=after: source.read(0, at(after), 5), range(8)))
            assert all(
                [archived.position.n for archived in batch] == list(range(after, after + 5)) for batch in batches
            )
    assert log.given == list(range(SIZE)), "each event is read once"


def test_readers_at_the_end_ask_again_when_it_moves_or_after_a_while() -> None:
    log = Log()
    whole, log.entries = log.entries, log.entries[:6]
    source = Shared(log, 60)
    for _ in range(3):  # three readers that were woken by the same events
        assert len(source.read(0, at(4), 5)) == 2
        assert source.read(0, at(6), 5) == ()
    assert log.given == [4, 5]
    log.entries = whole
    assert source.read(0, at(6), 5) == (), "nobody has said that it goes on"
    source.moved(1)
    assert source.read(0, at(6), 5) == ()
    source.moved(0)
    assert len(source.read(0, at(6), 5)) == 5


def test_what_moves_during_a_read_is_asked_for_again() -> None:
    """The archive advances, and says so, after the read has looked and before it is remembered."""

    class Moving(Log):
        def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
            found = super().read(partition, after, limit, upto)
            if len(self.entries) < SIZE:
                self.entries = whole
                source.moved(0)
            return found

    log = Moving()
    whole, log.entries = log.entries, log.entries[:6]
    source = Shared(log, 60)
    assert [len(source.read(0, at(n), 10)) for n in (0, 6)] == [6, 10]


def test_an_end_is_believed_for_a_while_only() -> None:
    log = Log()
    whole, log.entries = log.entries, log.entries[:6]
    source = Shared(log, 0.05)
    assert len(source.read(0, at(6), 5)) == 0
    log.entries = whole
    time.sleep(0.06)
    assert len(source.read(0, at(6), 5)) == 5


def test_a_batch_with_much_in_it_is_not_kept() -> None:
    log = Log()
    source = Shared(log, 60, most_chars=sum(archived.size for archived in log.entries[:5]) - 1)
    for limit in (5, 5, 4, 4):
        assert len(source.read(0, START, limit)) == limit
    assert log.given == [*range(5), *range(5), *range(4)], "only the small one is remembered"


# -- pace -------------------------------------------------------------------------------------------------------------


def test_a_pace_holds_its_caller_and_saves_nothing_up() -> None:
    pace = Pace(200)
    assert pace.batch(10_000) == 40
    time.sleep(0.3)  # the first events took longer than they might: that is no credit for the next ones
    began = time.monotonic()
    watched: list[float] = []
    for _ in range(3):
        pace.hold(40, lambda: watched.append(time.monotonic()))
    assert time.monotonic() - began >= 0.39
    assert watched


def test_without_a_limit_there_is_no_wait() -> None:
    pace = Pace()
    assert pace.batch(10_000) == 10_000
    pace.hold(10**12, lambda: pytest.fail("nothing to wait for"))


def test_a_limit_below_one_event_a_moment_takes_one_at_a_time() -> None:
    assert Pace(0.5).batch(10_000) == 1


# -- cores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "what"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
)
def test_a_container_may_use_what_it_is_granted(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == expected
