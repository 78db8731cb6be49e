"""The engine over both stores: each event once, in order, by one owner; whatever is restarted, fenced or poisoned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from events.archive.reader import Archived
from events.archive.store import end_epoch
from events.database import Database, Stores
from events.errors import Fenced, Refused, Transient
from events.event import Event, Position
from projections.engine import checkpoints, dead_letters, tables
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource, LogGap
from projections.engine.store import GenerationStore
from projections.projection import Projection, Put
from projections.rebuilding.rebuild import rebuild
from projections.rebuilding.verify import verify
from tests.contracts.engine_lab import NOTES, PARTITIONS, TOY, Lab, discard, dump, event, naive, note, where


@pytest.fixture
def store(lab: Lab) -> Iterator[GenerationStore]:
    store = new_store(lab)
    yield store
    store.db.close()


def new_store(lab: Lab, projection: Projection = TOY, name: str = "toy__g1") -> GenerationStore:
    store = GenerationStore(projection, lab.stores.generation(name))
    store.create(PARTITIONS)
    return store


def folder_of(lab: Lab, store: GenerationStore, task: str, owner: str = "w", **options: Any) -> PartitionFolder:
    return PartitionFolder.take_over(store, ArchiveSource(lab.log), where(task), owner, **options)


def drain(folder: PartitionFolder) -> PartitionFolder:
    while folder.step().read:
        pass
    return folder


def fold_all(lab: Lab, store: GenerationStore, **options: Any) -> None:
    for partition in range(PARTITIONS):
        drain(PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "w", **options)).hand_over()


def by_partition(events: Sequence[Event], positions: Sequence[Position]) -> Mapping[int, list[tuple[Position, Event]]]:
    logs: dict[int, list[tuple[Position, Event]]] = {}
    for each, position in zip(events, positions, strict=True):
        logs.setdefault(where(each.key.removeprefix("task/"), each.org), []).append((position, each))
    return logs


def notes_of(store: GenerationStore, task: str) -> dict[str, Any]:
    query = select(NOTES.c.name, NOTES.c.content).where(NOTES.c.key == f"task/{task}")
    return {row.name: row.content for row in store.db.read_now(lambda conn: conn.execute(query).all())}


# -- the same rows, however it is folded ------------------------------------------------------------------------------

TASKS = st.sampled_from(["t0", "t1", "t2", "t3"])
NAMES = st.sampled_from(["a", "b", "c"])
CONTENT = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3), st.lists(st.floats(-2, 2), max_size=2),
                    st.fixed_dictionaries({"copy": NAMES}))  # fmt: skip
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), TASKS, NAMES, CONTENT),
        st.tuples(st.just("called"), TASKS, NAMES),
        st.tuples(st.just("returned"), TASKS, NAMES, CONTENT),
        st.tuples(st.just("drop"), TASKS, NAMES),
        st.tuples(st.just("poison"), TASKS),
        st.tuples(st.just("newer"), TASKS),
        st.tuples(st.just("other"), TASKS),
        st.tuples(st.just("again"), st.integers(0, 30)),
        st.tuples(st.just("discard"), st.integers(0, 30)),
    ),
    max_size=40,
)


def events_of(operations: Sequence[tuple[Any, ...]]) -> list[Event]:
    """Operations as events; ``again`` repeats an earlier event, ``discard`` discards one."""
    events: list[Event] = []
    for index, (kind, *rest) in enumerate(operations):
        id_ = f"e{index}"
        match kind:
            case "note":
                events.append(note(id_, rest[0], rest[1], rest[2]))
            case "called":
                events.append(event("tool.called", id_, rest[0], {"call_id": rest[1], "name": "n"}))
            case "returned":
                events.append(event("tool.returned", id_, rest[0], {"call_id": rest[1], "result": rest[2]}))
            case "drop":
                events.append(event("message.added", id_, rest[0], {"role": "user", "name": rest[1]}))
            case "poison":
                events.append(note(id_, rest[0], "poison"))
            case "newer":
                events.append(note(id_, rest[0], "a", schemaversion=2))
            case "other":
                events.append(event("step.started", id_, rest[0], {"step": "s"}))
            case "again" if rest[0] < len(events):
                events.append(events[rest[0]])
            case "discard" if rest[0] < len(events):
                events.append(discard(id_, events[rest[0]].task or "t0", events[rest[0]].id))
    return events


def check_one_history(stores: Stores, operations: Sequence[tuple[Any, ...]], data: st.DataObject) -> None:
    """Live, with owners that come and go, equals the naive fold, a rebuild, and what verify folds."""
    lab = Lab(stores)
    events = events_of(operations)
    store = new_store(lab)
    folders: dict[int, PartitionFolder] = {}
    positions: list[Position] = []
    waiting = list(events)
    while waiting:
        size = data.draw(st.integers(1, 12))
        positions += lab.archive(*waiting[:size])
        del waiting[:size]
        for partition in range(PARTITIONS):
            if partition not in folders or data.draw(st.booleans()):
                folders[partition] = PartitionFolder.take_over(
                    store, ArchiveSource(lab.log), partition, "one owner",
                    batch=data.draw(st.integers(1, 9)), cache_rows=data.draw(st.sampled_from([0, 1, 3, 1000])),
                )  # fmt: skip
            for _ in range(data.draw(st.integers(0, 3))):
                folders[partition].step()
    fold_all(lab, store, batch=data.draw(st.integers(1, 50)))
    expected = naive(by_partition(events, positions))
    assert dump(store.db) == expected

    active = rebuild(TOY, stores, lab.log, batch=data.draw(st.integers(1, 50)))
    rebuilt = stores.generation(active.name)
    assert dump(rebuilt) == expected
    result = verify(TOY, stores, lab.log, batch=data.draw(st.integers(1, 50)))
    assert result.equal
    assert result.first_differences == []
    for db in (rebuilt, store.db, lab.log):
        db.close()


@settings(max_examples=20, deadline=None)
@given(operations=OPERATIONS, data=st.data())
def test_live_equals_naive_fold_rebuild_and_verify_sqlite(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """Random batch splits, owner changes, restarts, duplicates, poison and discards change nothing (C5, C6, C43)."""
    check_one_history(Stores(f"sqlite:///{tmp_path_factory.mktemp('history')}"), operations, data)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS, data=st.data())
def test_live_equals_naive_fold_rebuild_and_verify_postgresql(
    postgres: Any, operations: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    check_one_history(Stores(postgres.new_database()), operations, data)


# -- owners -----------------------------------------------------------------------------------------------------------


def test_a_zombie_owner_is_fenced_and_writes_nothing(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a", 1))
    zombie = folder_of(lab, store, "t", "zombie")
    successor = drain(folder_of(lab, store, "t", "successor"))
    lab.archive(note("e2", "t", "a", 2))
    with pytest.raises(Fenced):
        zombie.step()
    assert notes_of(store, "t") == {"a": 1}
    drain(successor)
    assert notes_of(store, "t") == {"a": 2}


def test_a_zombie_at_the_same_position_is_fenced_too(lab: Lab, store: GenerationStore) -> None:
    """Positions alone do not tell owners apart: both stand at the checkpoint."""
    zombie = folder_of(lab, store, "t", "zombie")
    folder_of(lab, store, "t", "successor")
    lab.archive(note("e1", "t", "a", 1))
    with pytest.raises(Fenced):
        zombie.step()
    assert notes_of(store, "t") == {}


def test_one_claim_cannot_commit_the_same_events_twice(lab: Lab, store: GenerationStore) -> None:
    """A commit that was thought lost arrives after all: the position tells, though the owner is the right one."""
    lab.archive(note("e1", "t", "a", 1))
    folder = folder_of(lab, store, "t")
    twin = PartitionFolder(store, ArchiveSource(lab.log), replace(folder.claim, parked=set()))
    folder.step()
    with pytest.raises(Fenced):
        twin.step()
    assert store.db.read_now(lambda conn: conn.execute(select(NOTES.c.version)).scalars().all()) == [1]


def test_who_takes_over_again_knows_what_others_wrote_meanwhile(lab: Lab, store: GenerationStore) -> None:
    """A cache kept after fencing would go on from note version 1."""
    lab.archive(note("e1", "t", "a", 1))
    first = drain(folder_of(lab, store, "t", "first"))
    lab.archive(note("e2", "t", "a", 2))
    drain(folder_of(lab, store, "t", "second"))
    lab.archive(note("e3", "t", "a", 3))
    with pytest.raises(Fenced):
        first.step()
    drain(folder_of(lab, store, "t", "first"))
    query = select(NOTES.c.version)
    assert store.db.read_now(lambda conn: conn.execute(query).scalars().all()) == [3]


def test_a_sealed_generation_cannot_be_advanced_or_taken_over(lab: Lab, store: GenerationStore) -> None:
    owner = folder_of(lab, store, "t")
    lab.archive(note("e1", "t", "a"))
    store.db.write_now(lambda conn: checkpoints.seal(conn, True))
    with pytest.raises(Fenced):
        owner.step()
    with pytest.raises(Fenced):
        folder_of(lab, store, "t")
    store.db.write_now(lambda conn: checkpoints.seal(conn, False))
    assert drain(folder_of(lab, store, "t")).position == lab.marks()[where("t")]


# -- what is read -----------------------------------------------------------------------------------------------------


class Tampered:
    """An archive that answers what ``change`` makes of its answer."""

    def __init__(self, lab: Lab, change: Any) -> None:
        self._source = ArchiveSource(lab.log)
        self._change = change

    def read(self, partition: int, after: Position, limit: int, upto: Position | None = None) -> Sequence[Archived]:
        return list(self._change(self._source.read(partition, after, limit, upto)))

    def epochs(self, partition: int) -> Mapping[int, int | None]:
        return self._source.epochs(partition)

    @property
    def log(self) -> Database:
        return self._source.log


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch[1:],
        lambda batch: [*batch[:2], *batch[3:]],
        lambda batch: [batch[0], *batch],
        lambda batch: [*batch[:2], batch[1]],
    ],
    ids=["first left out", "one left out", "first twice", "goes back"],
)
def test_a_gap_or_a_repetition_is_raised_and_folds_nothing(lab: Lab, store: GenerationStore, change: Any) -> None:
    lab.archive(*(note(f"e{i}", "t", f"n{i}") for i in range(5)))
    folder = PartitionFolder.take_over(store, Tampered(lab, change), where("t"), "w")
    with pytest.raises(LogGap):
        folder.step()
    assert notes_of(store, "t") == {}


def test_nothing_is_folded_past_the_watermark(lab: Lab, store: GenerationStore) -> None:
    """C9: rows that stand in the archive before their watermark does are not there yet."""
    lab.archive(note("e1", "t", "a"), note("e2", "t", "b"))
    lab.log.write_now(lambda conn: conn.exec_driver_sql("UPDATE log_watermarks SET n = n - 1 WHERE n > 0"))
    folder = drain(folder_of(lab, store, "t"))
    assert notes_of(store, "t") == {"a": "x"}
    lab.log.write_now(lambda conn: conn.exec_driver_sql("UPDATE log_watermarks SET n = n + 1 WHERE n >= 0"))
    drain(folder)
    assert notes_of(store, "t") == {"a": "x", "b": "x"}


def test_only_effective_events_count(lab: Lab, store: GenerationStore) -> None:
    """C13: a duplicate and a conflict change nothing, and the checkpoint passes them."""
    first = note("e1", "t", "a", "first")
    lab.archive(first, first, note("e1", "t", "a", "other"))
    folder = drain(folder_of(lab, store, "t"))
    assert notes_of(store, "t") == {"a": "first"}
    assert folder.position == lab.marks()[where("t")]


def test_the_checkpoint_passes_what_it_does_not_handle(lab: Lab, store: GenerationStore) -> None:
    """C12: types that the projection does not handle, or nobody knows, are passed over."""
    lab.archive(event("step.started", "e1", "t", {"step": "s"}), event("step.rated", "e2", "t", {"stars": 5}))
    assert drain(folder_of(lab, store, "t")).position == lab.marks()[where("t")]


def test_an_ended_epoch_is_followed_by_the_next(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a"), note("e2", "t", "b"))
    partition = where("t")
    lab.log.write_now(lambda conn: end_epoch(conn, partition, lab.marks()[partition], 2, "test", 0))
    lab.archive(note("e3", "t", "c"))
    folder = drain(folder_of(lab, store, "t", batch=2))
    assert folder.position == Position(2, 0)
    assert set(notes_of(store, "t")) == {"a", "b", "c"}


def test_a_commit_of_unknown_outcome_is_settled_by_the_checkpoint(lab: Lab, store: GenerationStore) -> None:
    from events.database_errors import CommitUnknown

    lab.archive(note("e1", "t", "a", 1))
    folder = folder_of(lab, store, "t")
    real = store.db.write_now

    def held(work: Any) -> Any:
        real(work)
        raise CommitUnknown

    def lost(work: Any) -> Any:
        raise CommitUnknown

    store.db.write_now = lost  # type: ignore[method-assign]
    with pytest.raises(Transient, match="did not hold"):
        folder.step()
    store.db.write_now = held  # type: ignore[method-assign]
    assert folder.step().applied == 1
    store.db.write_now = real  # type: ignore[method-assign]
    lab.archive(note("e2", "t", "a", 2))
    drain(folder)
    assert store.db.read_now(lambda conn: conn.execute(select(NOTES.c.version)).scalars().all()) == [2]


# -- dead letters -----------------------------------------------------------------------------------------------------


def letters_of(store: GenerationStore) -> list[tuple[str, str]]:
    found = store.db.read_now(dead_letters.list_letters)
    return [(letter.event_id, letter.cause) for letter in found]


def test_poison_parks_its_key_in_order_and_nothing_else(lab: Lab, store: GenerationStore) -> None:
    other = next(f"o{i}" for i in itertools.count() if where(f"o{i}") == where("t"))
    lab.archive(
        note("e1", "t", "a", 1), note("e2", "t", "poison"), note("f1", other, "a", 1),
        note("e3", "t", "a", 3), note("f2", other, "b", 2),
    )  # fmt: skip
    drain(folder_of(lab, store, "t"))
    assert notes_of(store, "t") == {"a": 1}
    assert notes_of(store, other) == {"a": 1, "b": 2}
    assert letters_of(store) == [("e2", "poison"), ("e3", "waiting")]
    lab.archive(note("e4", "t", "a", 4))
    drain(folder_of(lab, store, "t", "another owner"))
    assert letters_of(store) == [("e2", "poison"), ("e3", "waiting"), ("e4", "waiting")]
    shown = store.db.read_now(lambda conn: dead_letters.show(conn, "e2"))
    assert "this note cannot be folded" in shown[0].traceback
    assert "engine_lab.py" in shown[0].traceback


def test_a_failing_event_changes_nothing_though_it_put_rows_first(lab: Lab, store: GenerationStore) -> None:
    """``apply`` of a poisonous note yields its tally before it raises."""
    lab.archive(note("e1", "t", "poison"))
    drain(folder_of(lab, store, "t"))
    assert dump(store.db)["tallies"] == []


def test_a_discard_takes_the_event_out_and_folds_what_waited(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "poison"), note("e3", "t", "a", 3))
    owner = drain(folder_of(lab, store, "t"))
    lab.archive(discard("d1", "t", "e2"), note("e4", "t", "b", 4))
    drain(owner)
    assert notes_of(store, "t") == {"a": 3, "b": 4}
    assert letters_of(store) == []
    assert dump(store.db)["parked"] == []


def test_a_discard_of_another_projection_changes_nothing(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "poison"), discard("d1", "t", "e1", projection="other"))
    drain(folder_of(lab, store, "t"))
    assert letters_of(store) == [("e1", "poison")]


def test_a_discarded_event_that_newer_code_can_fold_stays_out(lab: Lab, store: GenerationStore) -> None:
    """Newer code meets the event first and its discard later: it must agree with what a person decided."""
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "a", 2), note("e3", "t", "b", 3), discard("d1", "t", "e2"))
    drain(folder_of(lab, store, "t", batch=1))
    assert notes_of(store, "t") == {"a": 1, "b": 3}
    assert store.db.read_now(lambda conn: conn.execute(select(NOTES.c.version)).scalars().all()) == [1, 1]


def test_a_discard_before_its_event_discards_nothing_when_the_key_is_folded_anew(
    lab: Lab, store: GenerationStore
) -> None:
    lab.archive(discard("d1", "t", "e2"), note("e1", "t", "a", 1), note("e2", "t", "b", 2), discard("d2", "t", "e1"))
    drain(folder_of(lab, store, "t", batch=1))
    assert notes_of(store, "t") == {"b": 2}


def test_retry_folds_the_whole_key_in_order_with_mended_code(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "poison"), note("e3", "t", "a", 3))
    owner = drain(folder_of(lab, store, "t"))
    mended = GenerationStore(_mended(), store.db)
    result = dead_letters.retry(mended, ArchiveSource(lab.log), ("default", "task/t"))
    assert (result.folded, result.left) == (2, [])
    assert notes_of(store, "t") == {"a": 3, "poison": "mended"}
    lab.archive(note("e4", "t", "a", 4))
    with pytest.raises(Fenced):  # its cache knows nothing of the retry
        owner.step()
    drain(folder_of(lab, mended, "t"))
    assert notes_of(store, "t") == {"a": 4, "poison": "mended"}


def test_retry_without_a_mend_leaves_everything_as_it_was(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e2", "t", "poison"), note("e3", "t", "a", 3))
    drain(folder_of(lab, store, "t"))
    before = dump(store.db)
    result = dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/t"))
    assert [letter.event_id for letter in result.left] == ["e2", "e3"]
    assert dump(store.db) == before
    with pytest.raises(Refused, match="no dead letters"):
        dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/healthy"))


def test_a_newer_version_waits_for_an_upgrade(lab: Lab, store: GenerationStore) -> None:
    """C12: parked, not dropped; the rest of its key waits in order."""
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "a", 2, schemaversion=2), note("e3", "t", "a", 3))
    drain(folder_of(lab, store, "t"))
    assert letters_of(store) == [("e2", "newer_version"), ("e3", "waiting")]


def test_a_row_that_the_store_cannot_hold_is_its_events_fault(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "wide"), note("f1", "u", "a", 1))
    fold_all(lab, store)
    assert letters_of(store) == [("e2", "poison")]
    assert notes_of(store, "u") == {"a": 1}


def _unwritable(recorded: Any, rows: Any) -> Any:
    name = recorded.payload.key
    if name == "poison":
        raise ValueError("this note cannot be folded")
    return [Put("notes", {"name": "\ud800" if name == "bad" else name, "content": recorded.payload.content})]


UNWRITABLE = Projection("odd", 1, TOY.tables, frozenset({"note.written"}), _unwritable)
"""Its ``bad`` notes have a name that no store can hold, which the fold does not notice."""


def test_what_only_the_store_notices_is_found_in_single_steps(lab: Lab) -> None:
    """A text that cannot be written fails the whole batch; only the event alone in its step is parked."""
    store = new_store(lab, UNWRITABLE, "odd__g1")
    lab.archive(*(note(f"e{i}", "t" if i == 5 else f"t{i}", "bad" if i == 5 else "a", i) for i in range(12)))
    fold_all(lab, store)
    assert letters_of(store) == [("e5", "unwritable")]
    assert len(dump(store.db)["notes"]) == 11
    store.db.close()


def test_a_retry_of_what_the_store_refuses_leaves_it_with_its_reason(lab: Lab) -> None:
    store = new_store(lab, UNWRITABLE, "odd__g1")
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "bad", 2), note("e3", "t", "c", 3))
    drain(folder_of(lab, store, "t")).hand_over()
    before = dump(store.db)
    result = dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/t"))
    assert [(letter.event_id, letter.cause) for letter in result.left] == [("e2", "unwritable"), ("e3", "waiting")]
    assert "surrogates not allowed" in result.left[0].error
    assert (result.folded, dump(store.db)) == (0, before)
    mended = GenerationStore(replace(UNWRITABLE, apply=lambda recorded, rows: []), store.db)
    assert dead_letters.retry(mended, ArchiveSource(lab.log), ("default", "task/t")).left == []
    store.db.close()


def test_what_waited_for_a_discarded_event_and_cannot_be_written_is_parked_in_turn(lab: Lab) -> None:
    store = new_store(lab, UNWRITABLE, "odd__g1")
    lab.archive(note("e1", "t", "poison"), note("e2", "t", "bad"), note("e3", "t", "c"))
    lab.archive(discard("d1", "t", "e1", "odd"))
    drain(folder_of(lab, store, "t")).hand_over()
    assert letters_of(store) == [("e2", "unwritable"), ("e3", "waiting")]
    lab.archive(discard("d2", "t", "e2", "odd"))
    drain(folder_of(lab, store, "t"))
    assert letters_of(store) == []
    assert notes_of(store, "t") == {"c": "x"}
    store.db.close()


@pytest.mark.parametrize("value", [float("nan"), [{"deep": (1, float("-inf"), None)}], {1, 2}])
def test_a_value_that_json_cannot_tell_is_its_events_fault(lab: Lab, value: Any) -> None:
    """Where batches end must not matter: the event is parked though a later one of the batch replaces its row."""

    def apply(recorded: Any, rows: Any) -> Any:
        content = value if recorded.event.id == "e2" else [None, "null"]
        return [Put("notes", {"name": "n", "content": content, "version": 1})]

    projection = Projection("odd", 1, TOY.tables, frozenset({"note.written"}), apply)
    lab.archive(note("e1", "t", "a"), note("e2", "t", "a"), note("e3", "t", "a"))
    store = new_store(lab, projection, "odd__g1")
    fold_all(lab, store)
    assert letters_of(store) == [("e2", "poison"), ("e3", "waiting")]
    assert notes_of(store, "t") == {"n": [None, "null"]}
    store.db.close()


class Stop(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("place", ["apply", "names", "key"])
@pytest.mark.parametrize("exits", [SystemExit, Stop])
def test_a_fold_that_exits_is_its_events_fault(lab: Lab, place: str, exits: type[BaseException]) -> None:
    """Or one event would end the process that folds all others, again and again."""

    def deadly(recorded: Any, *rows: Any) -> Any:
        if recorded.event.id == "e2":
            raise exits("enough")
        return getattr(TOY, place)(recorded, *rows)

    store = new_store(lab, replace(TOY, **{place: deadly}))
    lab.archive(note("e0", "t", "a", 1))
    fold_all(lab, store)  # rows are there now, so that `names` is asked
    lab.archive(note("e1", "t", "a", 1), note("e2", "t", "b", 2), note("f1", "u", "a", 3))
    fold_all(lab, store)
    assert letters_of(store) == [("e2", "poison")]
    assert notes_of(store, "u") == {"a": 3}
    store.db.close()


def test_a_fault_of_the_machine_parks_nothing(lab: Lab) -> None:
    def apply(recorded: Any, rows: Any) -> Any:
        raise OSError("no space left on device")

    store = new_store(lab, Projection("ill", 1, TOY.tables, frozenset({"note.written"}), apply), "ill__g1")
    lab.archive(note("e1", "t", "a"))
    with pytest.raises(Transient, match="no space left"):
        folder_of(lab, store, "t").step()
    assert letters_of(store) == []
    store.db.close()


@pytest.mark.parametrize("error", [MemoryError(), OSError("no such file"), ImportError("no module named x")])
@pytest.mark.parametrize("place", ["apply", "key"])
def test_what_one_event_meets_again_and_again_while_others_succeed_is_its_own(
    lab: Lab, place: str, error: Exception
) -> None:
    """It becomes a dead letter, the same one live, in a rebuild and in a check; a retry that fails again keeps it."""

    def ill(recorded: Any, *rows: Any) -> Any:
        if recorded.event.id == "e2":
            raise error
        return getattr(TOY, place)(recorded, *rows)

    weak = replace(TOY, **{place: ill})
    store = new_store(lab, weak, "toy__by_hand")
    lab.archive(*(note(f"e{i}", "t", f"n{i}", i) for i in range(4)))
    folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), where("t"), "w", patience=2)
    for _ in range(2):
        with pytest.raises(Transient, match=type(error).__name__):
            folder.step()
    drain(folder)
    assert letters_of(store) == [("e2", "machine"), ("e3", "waiting")]
    again = dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/t"))
    assert (again.folded, [letter.cause for letter in again.left]) == (0, ["machine", "waiting"])
    store.db.close()
    built = rebuild(weak, lab.stores, lab.log)
    assert verify(weak, lab.stores, lab.log).equal
    rebuilt = GenerationStore(weak, lab.stores.generation(built.name))
    assert letters_of(rebuilt) == [("e2", "machine"), ("e3", "waiting")]
    rebuilt.db.close()


def test_when_everything_fails_the_system_is_suspected_first(lab: Lab) -> None:
    def apply(recorded: Any, rows: Any) -> Any:
        raise KeyError("setting")

    store = new_store(lab, Projection("ill", 1, TOY.tables, frozenset({"note.written"}), apply), "ill__g1")
    tasks = [f"t{i}" for i in range(200) if where(f"t{i}") == 0][:12]
    lab.archive(*(note(f"e{i}", task, "a") for i, task in enumerate(tasks)))
    folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), 0, "w", patience=2)
    for _ in range(2):
        with pytest.raises(Transient, match="12 keys fail"):
            folder.step()
    assert letters_of(store) == []
    folder.step()
    assert len(letters_of(store)) == 12
    store.db.close()


# -- deaths -----------------------------------------------------------------------------------------------------------


def vanish(store: GenerationStore, times: int) -> None:
    """Owners of every partition that take over and are never heard of again."""
    for life in range(times):
        for partition in range(PARTITIONS):
            store.db.write_now(lambda conn, p=partition, life=life: checkpoints.take_over(conn, p, f"life {life}"))


def test_kills_from_outside_never_park_the_innocent(lab: Lab, store: GenerationStore) -> None:
    """C7, the other half: a hundred owners vanish while nothing is alone in its step."""
    lab.archive(*(note(f"e{i}", "t", f"n{i}") for i in range(5)))
    vanish(store, 100)
    folder = folder_of(lab, store, "t", "survivor")
    assert folder.single
    drain(folder)
    assert letters_of(store) == []
    assert len(notes_of(store, "t")) == 5


def test_only_a_death_with_the_event_alone_counts_against_it(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a"), note("e2", "t", "b"))
    for life in range(checkpoints.STRIKES):
        claim = store.db.write_now(lambda conn, life=life: checkpoints.take_over(conn, where("t"), f"life {life}"))
        assert claim.strikes == life
        store.db.write_now(lambda conn, claim=claim: checkpoints.mark_alone(conn, claim, True))
    folder = folder_of(lab, store, "t", "survivor")
    drain(folder)
    assert letters_of(store) == [("e1", "killed"), ("e2", "waiting")]


def test_a_death_before_the_event_is_tried_again_counts_for_nothing(lab: Lab, store: GenerationStore) -> None:
    """Once it died alone; then a hundred owners are killed from outside before they come to it."""
    lab.archive(note("e1", "t", "a"))
    claim = folder_of(lab, store, "t", "first").claim
    store.db.write_now(lambda conn: checkpoints.mark_alone(conn, claim, True))
    vanish(store, 100)
    folder = folder_of(lab, store, "t", "survivor")
    assert folder.claim.strikes == 1
    drain(folder)
    assert letters_of(store) == []


def test_a_clean_hand_over_counts_for_nothing(lab: Lab, store: GenerationStore) -> None:
    for life in range(5):
        folder_of(lab, store, "t", f"life {life}").hand_over()
    assert not folder_of(lab, store, "t", "last").single


def test_an_advance_forgets_former_deaths(lab: Lab, store: GenerationStore) -> None:
    vanish(store, 5)
    lab.archive(note("e1", "t", "a"))
    drain(folder_of(lab, store, "t", "w")).hand_over()
    assert not folder_of(lab, store, "t", "v").single


def test_verify_finds_a_tampered_row(lab: Lab, store: GenerationStore) -> None:
    lab.archive(note("e1", "t", "a", {"b": 1}), note("e2", "u", "a"))
    active = rebuild(TOY, lab.stores, lab.log)
    db = lab.stores.generation(active.name)
    assert verify(TOY, lab.stores, lab.log).equal
    db.write_now(lambda conn: conn.execute(update(NOTES).where(NOTES.c.key == "task/t").values(version=7)))
    result = verify(TOY, lab.stores, lab.log)
    assert not result.equal
    difference = result.first_differences[0]
    assert (difference["table"], difference["key"]) == ("notes", ["default", "task/t", "a"])
    assert (difference["live"]["version"], difference["refolded"]["version"]) == (7, 1)
    db.write_now(lambda conn: conn.execute(update(tables.dead_letters).values(cause="x")))
    db.close()


def _mended() -> Projection:
    def apply(recorded: Any, rows: Any) -> Any:
        if recorded.payload.key == "poison":
            return [Put("notes", {"name": "poison", "content": "mended", "version": 1})]
        return list(TOY.apply(recorded, rows))

    return Projection("toy", 1, TOY.tables, TOY.handles, apply)
