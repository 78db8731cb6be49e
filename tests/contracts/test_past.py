"""A key at an earlier position: what the live fold had there, row for row and document for document."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import Connection

from events.archive import queries
from events.archive.store import end_epoch, log_id
from events.database import Stores
from events.door import admit
from events.errors import Refused, Transient
from events.event import START, Position, Recorded
from events.tokens import write_token
from migrations import migrate
from projections.engine import past as engine_past
from projections.engine.discards import discarded
from projections.engine.fold import DeadLetter, PartitionKey, Refusal
from projections.engine.folder import PartitionFolder
from projections.engine.past import Past, fold_past, in_memory
from projections.engine.shapes import RowKey
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore, read_letters
from projections.projection import Change, Projection, Row, Rows
from projections.queries.moments import find_moment
from projections.queries.tasks import resume_document, task_document
from projections.registry import PROJECTIONS
from projections.task_state import TASK_STATE
from services.api import history
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, discard, event, lab_in, note, where
from tests.contracts.streams import Made, events_of, streams
from tests.golden_store import STORES, load
from tests.unit.test_golden_histories import HISTORIES

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def small_pages() -> Iterator[None]:
    """Histories are read in several pages, so that what one page left is at hand in the next one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_past, "PAGE", 3)
        yield


class Stand(NamedTuple):
    """What a generation had of a key at a position."""

    position: Position
    owner: PartitionKey
    rows: Mapping[RowKey, Row]
    letters: list[tuple[Position, str]]


@contextmanager
def generation(lab: Lab, projection: Projection, name: str = "live__g1") -> Iterator[GenerationStore]:
    store = GenerationStore(projection, lab.stores.generation(name))
    try:
        store.create(PARTITIONS)
        yield store
    finally:
        store.db.close()


def stands(lab: Lab, store: GenerationStore, *, taken_back: bool) -> list[Stand]:
    """Fold the log event by event, and what each event's key came to by it.

    ``taken_back``: as a rebuild does, which does not try what the log itself takes back later on.
    """
    found = []
    for partition in range(PARTITIONS):
        look = partial(discarded, projection=store.projection, partition=partition, after=START)
        refused: Mapping[Position, Refusal] = lab.log.read_now(look) if taken_back else {}
        folder = PartitionFolder.take_over(
            store, ArchiveSource(lab.log), partition, "test", refused=refused, cache_rows=5
        )
        for archived in lab.log.read_now(partial(queries.read_log, partition=partition, after=START, limit=10_000)):
            step = folder.step(archived.position)
            while step.read and step.position < archived.position:
                step = folder.step(archived.position)
            owner = (archived.event().org, archived.event().key)
            found.append(Stand(archived.position, owner, store.load_key(*owner), told(letters_of(store, owner))))
    return found


def letters_of(store: GenerationStore, owner: PartitionKey) -> list[DeadLetter]:
    return store.db.read_now(partial(read_letters, owner=owner))


def told(letters: Iterable[DeadLetter]) -> list[tuple[Position, str]]:
    return [(letter.position, letter.cause) for letter in letters]


def check(lab: Lab, store: GenerationStore, found: Sequence[Stand]) -> None:
    """Each stand is what the past at its position is, by the dead letters that the generation has now."""
    for stand in found:
        past = fold_past(store.projection, lab.log, stand.owner, stand.position, letters_of(store, stand.owner))
        assert past.rows == stand.rows, stand.position
        assert told(past.letters) == stand.letters, stand.position


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(streams(40))
def test_any_key_at_any_position_is_what_the_fold_had_there(stream: list[Made]) -> None:
    """Duplicates, conflicts, late, unknown, newer and broken events, and discards: all count as in the live fold."""
    with tempfile.TemporaryDirectory() as folder:
        lab = lab_in(Path(folder))
        try:
            lab.archive(*events_of(stream, ["task_state"]))
            with generation(lab, TASK_STATE, "anew__g1") as store:
                check(lab, store, stands(lab, store, taken_back=True))
            with generation(lab, TASK_STATE) as live:
                last = {stand.owner: stand for stand in stands(lab, live, taken_back=False)}
                check(lab, live, list(last.values()))
        finally:
            lab.log.close()


def as_bytes(conn: Connection, task: str) -> bytes:
    both = [read(conn, "default", task, now=NOW) for read in (task_document, resume_document)]
    return orjson.dumps(both)


@pytest.mark.parametrize("history", ["killed_and_resumed", "cards_in_two_languages"])
def test_documents_of_a_golden_history_are_the_live_ones_byte_for_byte(lab: Lab, history: str) -> None:
    events = [admit(orjson.loads(line)) for line in (HISTORIES / f"{history}.jsonl").read_bytes().splitlines()]
    lab.archive(*events)
    ((task, _),) = Counter(event.task for event in events if event.key.startswith("task/")).most_common(1)
    owner, partition = ("default", f"task/{task}"), where(task)
    compared = 0
    with generation(lab, TASK_STATE) as store:
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test")
        while (step := folder.step(limit=3)).read:
            live = store.db.read_now(partial(as_bytes, task=task))
            with in_memory(fold_past(TASK_STATE, lab.log, owner, step.position)) as conn:
                assert as_bytes(conn, task) == live, step.position
            compared += live != b"[null,null]"
    assert compared >= 2


def test_a_store_of_former_code_is_looked_back_on_by_the_code_that_runs(tmp_path: Path) -> None:
    """C11: nothing of rows that other code made is taken over: the log is folded anew."""
    stores = Stores(f"sqlite:///{tmp_path}")
    load(STORES[-1], stores)
    log = stores.log()
    try:
        migrate(log)
        events = [
            one
            for p in range(PARTITIONS)
            for one in log.read_now(partial(queries.read_log, partition=p, after=START, limit=999))
        ]
        last = max(one.position for one in events if one.event().key == "task/golden")
        past = fold_past(TASK_STATE, log, ("default", "task/golden"), last)
        with in_memory(past) as conn:
            document = resume_document(conn, "default", "golden", now=NOW)
    finally:
        log.close()
    assert document is not None and document["status"] == "completed"
    assert document["checkpoint"]["data"] == {"z": [1, 2], "a": "byte for byte"}
    assert {name[0] for name in past.rows} >= {"snapshots", "steps", "calls"}


def parked(lab: Lab) -> tuple[list[Position], PartitionKey]:
    """A key of which an event cannot be folded, and is discarded later on."""
    return lab.archive(
        note("e1", "t1", "n", 1), note("e2", "t1", "poison"), note("e3", "t1", "n", 2),
        discard("d1", "t1", "e2"), note("e4", "t1", "n", 3),
    ), ("default", "task/t1")  # fmt: skip


def contents(past: Past) -> list[Any]:
    return [row["content"] for name, row in past.rows.items() if name[0] == "notes"]


def test_a_dead_letter_holds_its_key_up_until_its_discard(lab: Lab) -> None:
    positions, owner = parked(lab)
    seen = [fold_past(TOY, lab.log, owner, position) for position in positions]
    assert [contents(past) for past in seen] == [[1], [1], [1], [2], [3]]
    assert [told(past.letters) for past in seen] == [
        [], [(positions[1], "poison")], [(positions[1], "poison"), (positions[2], "waiting")], [], [],
    ]  # fmt: skip
    assert [past.events for past in seen] == [1, 2, 3, 4, 5]


def test_a_discard_that_comes_before_its_event_discards_nothing(lab: Lab) -> None:
    positions = lab.archive(note("e1", "t1", "n", 1), discard("d", "t1", "e2"), note("e2", "t1", "n", 2))
    assert contents(fold_past(TOY, lab.log, ("default", "task/t1"), positions[-1])) == [2]


def test_what_killed_processes_is_not_tried_again(lab: Lab) -> None:
    """C7: the live generation knows; whoever looks back must not die of it once more."""

    def deadly(recorded: Recorded, rows: Rows) -> Iterable[Change]:
        assert recorded.event.id != "e2", "it was folded"
        return TOY.apply(recorded, rows)

    projection = replace(TOY, apply=deadly)
    positions = lab.archive(note("e1", "t1", "n", 1), note("e2", "t1", "n", 2), note("e3", "t1", "n", 3))
    owner = ("default", "task/t1")
    letter = DeadLetter(where("t1"), positions[1], *owner, "e2", "note.written", "killed", "the process ended", "")
    past = fold_past(projection, lab.log, owner, positions[-1], [letter])
    assert contents(past) == [1]
    assert told(past.letters) == [(positions[1], "killed"), (positions[2], "waiting")]
    # and what was discarded since is not, either, though no letter tells of it any more
    lab.archive(discard("d", "t1", "e2"))
    assert contents(fold_past(projection, lab.log, owner, positions[-1])) == [1]


def test_a_history_that_is_too_long_for_one_answer_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = lab.archive(*(note(f"e{i}", "t1", "n", i) for i in range(5)))
    monkeypatch.setattr(history, "MAX_EVENTS", 3)
    find = partial(history.find_foldable, org="default", key="task/t1", partition=where("t1"))
    assert lab.log.read_now(partial(find, at=str(positions[2]))) == positions[2]
    with pytest.raises(Refused, match=r"more than 3 events up to 1-3.*timeline") as refused:
        lab.log.read_now(partial(find, at=str(positions[3])))
    assert refused.value.code == "too_long"


def test_another_organisation_or_key_has_no_part_in_it(lab: Lab) -> None:
    """Invariant 7."""
    lab.archive(note("a", "t1", "mine", 1, org="acme"), note("b", "t1", "theirs", 2, org="beta"))
    (last,) = lab.archive(note("c", "t2", "others", 3, org="acme"))
    past = fold_past(TOY, lab.log, ("acme", "task/t1"), max(last, Position(1, 9)))
    assert (contents(past), past.events) == ([1], 1)


def test_whoever_gave_up_is_not_worked_for(lab: Lab) -> None:
    positions, owner = parked(lab)
    with pytest.raises(Transient, match="given up"):
        fold_past(TOY, lab.log, owner, positions[-1], given_up=lambda: True)


# --- moments ---------------------------------------------------------------------------------------------------------


def moment(lab: Lab, at: str, task: str = "t1") -> Position:
    def work(conn: Connection) -> Position:
        return find_moment(conn, "default", f"task/{task}", where(task), at, log_id(conn))

    return lab.log.read_now(work)


def refusal(lab: Lab, at: str) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        moment(lab, at)
    assert refused.value.field in ("at", "after")
    return refused.value.code, str(refused.value)


def test_a_moment_is_a_position_a_token_or_an_event(lab: Lab) -> None:
    positions = lab.archive(
        *(note(f"e{i}", "t1", "n", i) for i in range(4)), event("message.added", "m:1 x", "t1", {"role": "user"})
    )
    here = lab.log.read_now(log_id)
    assert moment(lab, str(positions[2])) == positions[2]
    assert moment(lab, "e1") == positions[1]
    assert moment(lab, "m:1 x") == positions[4]
    for of in ("", here):
        assert moment(lab, write_token([(where("t1"), positions[3]), (9, Position(1, 1))], of)) == positions[3]


def test_a_moment_that_is_none_is_refused_with_what_to_do(lab: Lab) -> None:
    positions = lab.archive(*(note(f"e{i}", "t1", "n", i) for i in range(3)), note("elsewhere", "t2", "n"))
    other = (where("t1") + 1) % PARTITIONS
    assert refusal(lab, "1-3")[0] == "bad_position"
    assert "past the end: the last of this task's partition is 1-2" in refusal(lab, "1-3")[1]
    assert "past the end" in refusal(lab, "7-0")[1]
    assert "before the first" in refusal(lab, "0-0")[1]
    assert "another partition" in refusal(lab, write_token([(other, positions[0])]))[1]
    assert refusal(lab, write_token([(where("t1"), positions[0])], "ab" * 16))[0] == "foreign_token"
    for at in ("elsewhere", "nobody", "1-", "-1-2", "2026-03-01T10:00:00Z", "", "١-٢", "1" * 40 + "-1"):
        code, text = refusal(lab, at)
        assert code == "no_event" and "--history" in text, at


def test_a_position_that_recovery_made_void_is_none(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", "t1", "n", i) for i in range(3)))
    partition = where("t1")
    lab.log.write_now(lambda conn: end_epoch(conn, partition, Position(1, 2), 2, "lost", 0))
    lab.archive(note("e3", "t1", "n", 3))
    assert "void: epoch 1 of this task's partition ended at 2" in refusal(lab, "1-3")[1]
    assert moment(lab, "1-2") == Position(1, 2)
    assert moment(lab, "2-0") == Position(2, 0)
    assert contents(fold_past(TOY, lab.log, ("default", "task/t1"), Position(2, 0))) == [3]
    assert contents(fold_past(TOY, lab.log, ("default", "task/t1"), Position(1, 2))) == [2]


def test_every_read_model_can_be_looked_back_on(tmp_path: Path) -> None:
    """The fold of a key is the engine's, whatever the projection."""
    lab = lab_in(tmp_path)
    events = [admit(orjson.loads(line)) for line in (HISTORIES / "killed_and_resumed.jsonl").read_bytes().splitlines()]
    last = {(one.org, one.key): position for one, position in zip(events, lab.archive(*events), strict=True)}
    for projection in PROJECTIONS.values():
        with generation(lab, projection, f"{projection.name}__g9") as store:
            for partition in range(PARTITIONS):
                folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test")
                while folder.step().read:
                    pass
            for owner, position in last.items():
                assert fold_past(projection, lab.log, owner, position).rows == store.load_key(*owner)
    lab.log.close()
