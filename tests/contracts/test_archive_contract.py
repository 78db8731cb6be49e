"""The archive on both stores: the compare-and-set first, dense positions, verdicts, epochs, reads by name."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, text

from events.archive import queries, store
from events.archive.queries import Verdicted
from events.archive.refusals import drop_refusals, keep_refusals, read_refusals, refusal_of
from events.archive.store import Entry, First, next_of
from events.database import Database
from events.door import admit
from events.errors import Fenced, SetupError
from events.event import START, Event, Position
from tests.stack import event

OPENED = Position(1, -1)


@pytest.fixture
def db(log_db: Database) -> Database:
    """A log of two partitions, partition 0 open at epoch 1."""

    def work(conn: Connection) -> None:
        store.open_log(conn, 2, 0)
        store.end_epoch(conn, 0, START, 1, "first", 0)

    log_db.write_now(work)
    return log_db


def after(position: Position, events: Sequence[Event]) -> list[Entry]:
    return [(Position(position.epoch, position.n + 1 + i), e) for i, e in enumerate(events)]


def archive(db: Database, expected: Position, events: Sequence[Event], received_ms: int = 7) -> Position:
    return db.write_now(lambda conn: store.archive_batch(conn, 0, expected, after(expected, events), received_ms))


def read(db: Database, since: Position = START, limit: int = 1000, upto: Position | None = None) -> list[Any]:
    return db.read_now(lambda conn: queries.read_log(conn, 0, since, limit, upto))


def mark(db: Database) -> Position:
    return db.read_now(lambda conn: store.watermark(conn, 0))


# --- the log's frame -------------------------------------------------------------------------------------------------


def test_the_number_of_partitions_is_fixed(db: Database) -> None:
    db.write_now(lambda conn: store.open_log(conn, 2, 1))
    assert db.read_now(store.partition_count) == 2
    with pytest.raises(SetupError, match="2 partitions and cannot be used with 3: set REFOLD_PARTITIONS=2"):
        db.write_now(lambda conn: store.open_log(conn, 3, 1))
    with pytest.raises(SetupError, match="no partition 2"):
        db.read_now(lambda conn: store.watermark(conn, 2))


def test_ended_epochs_are_the_only_discontinuity(db: Database) -> None:
    mark_1 = archive(db, OPENED, [event(), event()])
    assert mark_1 == (1, 1)
    assert db.write_now(lambda conn: store.end_epoch(conn, 0, mark_1, 4, "lost", 9)) == (4, -1)
    assert [db.read_now(lambda conn, p=p: queries.last_archived(conn, p)) for p in (0, 1)] == [mark_1, None]
    assert db.write_now(lambda conn: store.end_epoch(conn, 0, Position(4, -1), 5, "again", 9)) == (5, -1)
    archive(db, Position(5, -1), [event()])
    epochs = db.read_now(queries.read_epochs)
    assert epochs == {0: {0: -1, 1: 1, 4: -1, 5: None}, 1: {0: None}}
    steps = [START]
    for _ in range(4):
        steps.append(next_of(steps[-1], epochs[0]))
    assert steps[1:] == [(1, 0), (1, 1), (5, 0), (5, 1)]
    assert [a.position for a in read(db)] == steps[1:4]
    with pytest.raises(ValueError, match="void"):
        next_of(Position(1, 2), epochs[0])
    assert db.read_now(queries.count_events) == 3
    with pytest.raises(ValueError, match="does not follow"):
        db.write_now(lambda conn: store.end_epoch(conn, 0, Position(5, 0), 5, "", 9))


def test_recovery_fences_a_sleeping_archiver(db: Database) -> None:
    db.write_now(lambda conn: store.end_epoch(conn, 0, OPENED, 2, "lost", 9))
    with pytest.raises(Fenced):
        archive(db, OPENED, [event()])
    with pytest.raises(Fenced):
        db.write_now(lambda conn: store.end_epoch(conn, 0, OPENED, 3, "lost", 9))
    assert read(db) == []
    assert mark(db) == (2, -1)


# --- archiving -------------------------------------------------------------------------------------------------------


def test_a_batch_is_archived_once_though_it_is_tried_twice(db: Database) -> None:
    events = [event() for _ in range(3)]
    archive(db, OPENED, events)
    with pytest.raises(Fenced):
        archive(db, OPENED, events)
    assert [a.event() for a in read(db)] == events


@pytest.mark.parametrize("positions", [[(1, 1)], [(1, 0), (1, 2)], [(1, 0), (1, 0)], [(1, 1), (1, 0)], [(2, 0)]])
def test_a_gap_is_refused_with_nothing_written(db: Database, positions: list[tuple[int, int]]) -> None:
    entries = [(Position(*position), event()) for position in positions]
    with pytest.raises(Fenced, match="does not follow"):
        db.write_now(lambda conn: store.archive_batch(conn, 0, OPENED, entries, 7))
    assert (read(db), mark(db)) == ([], OPENED)


def test_an_empty_batch_changes_nothing(db: Database) -> None:
    assert archive(db, OPENED, []) == OPENED


def test_every_field_comes_back(db: Database) -> None:
    raw = {
        "id": "e1", "type": "note.written", "source": "s", "time": "2026-03-01T10:00:00+02:00", "org": "o",
        "agent": "a", "user": "ü", "session": "s1", "task": "t", "run": "r", "seq": 3, "causation": "c",
        "correlation": "k", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "data": {"key": "k", "value": "nul \x00 and literal \\u0000 and 😀", "content": "x"},
    }  # fmt: skip
    original = admit(raw)
    archive(db, OPENED, [original], received_ms=1234)
    [archived] = read(db)
    assert archived.event() == original
    assert archived.event().sanitized is True
    assert (archived.partition, archived.position, archived.type) == (0, (1, 0), "note.written")
    assert (archived.verdict, archived.first, archived.received_ms) == ("effective", None, 1234)


def test_nul_in_value_key_and_nested_argument(db: Database) -> None:
    """C22: accepted in the defined form on both stores, and later events of the run are archived after it."""
    hostile = "weather in \x00 city"
    data = {"call_id": "c1", "name": "w", "arguments": {hostile: [hostile, {"deep": hostile}]}}
    events = [event(type_="tool.called", data=data), event()]
    archive(db, OPENED, events)
    first, second = (a.event() for a in read(db))
    assert "weather in � city" in first.data
    assert "\x00" not in first.data
    assert "u0000" not in first.data
    assert (first.sanitized, second.sanitized) == (True, False)


def test_verdicts(db: Database) -> None:
    """C13: the window forgot ids; the archive's verdicts tell duplicate and conflict, across and within batches."""

    def call(name: str, task: str = "t1") -> Event:
        return event(type_="tool.called", id="E1", task=task, run="r", data={"call_id": "c", "name": name})

    first = archive(db, OPENED, [call("search"), call("search", task="t2")])
    archive(db, first, [call("search"), call("delete"), event(), call("delete", task="t2"), call("search", task="t3")])
    seen = [(a.verdict, a.first) for a in read(db)]
    assert seen == [
        ("effective", None),
        ("effective", None),
        ("duplicate_of", (1, 0)),
        ("conflict_with", (1, 0)),
        ("effective", None),
        ("conflict_with", (1, 1)),
        ("effective", None),
    ]
    wanted = [Position(1, 2), Position(1, 4), Position(1, 99)]
    verdicts = db.read_now(lambda conn: queries.read_verdicts(conn, 0, wanted))
    assert verdicts == {(1, 2): Verdicted("duplicate_of", Position(1, 0)), (1, 4): Verdicted("effective", None)}


def test_verdicts_within_one_batch(db: Database) -> None:
    one, other = event(id="same", run="r"), event(id="same", run="r", user="u")
    archive(db, OPENED, [one, one, other, one])
    assert [(a.verdict, a.first) for a in read(db)] == [
        ("effective", None),
        ("duplicate_of", (1, 0)),
        ("conflict_with", (1, 0)),
        ("duplicate_of", (1, 0)),
    ]


def test_no_position_becomes_visible_before_the_one_it_follows(db: Database) -> None:
    """C9: a transaction that holds position 0 open; one with position 1 cannot overtake it."""
    holds, go = threading.Event(), threading.Event()
    other = Database(db.url, schema=db.schema)

    def slow(conn: Connection) -> Position:
        new = store.archive_batch(conn, 0, OPENED, after(OPENED, [event()]), 7)
        holds.set()
        go.wait(10)
        return new

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(db.write_now, slow)
        holds.wait(10)
        second = pool.submit(archive, other, Position(1, 0), [event()])
        assert read(db) == []
        go.set()
        assert first.result() == (1, 0)
        try:
            second.result()
        except Fenced:
            archive(other, Position(1, 0), [event()])
    assert [a.position for a in read(db)] == [(1, 0), (1, 1)]
    other.close()


def test_many_writers_of_one_partition_leave_one_dense_log(db: Database) -> None:
    databases = [Database(db.url, schema=db.schema) for _ in range(4)]

    def write_on(mine: Database) -> int:
        done = 0
        while done < 25:
            try:
                archive(mine, mark(mine), [event() for _ in range(3)])
                done += 1
            except Fenced:
                continue
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write_on, databases)) == 100
    archived = read(db)
    assert [a.position for a in archived] == [(1, n) for n in range(300)]
    assert len({a.event().id for a in archived}) == 300
    for database in databases:
        database.close()


# --- reading ---------------------------------------------------------------------------------------------------------


def test_pages_follow_each_other_across_epochs(db: Database) -> None:
    last = archive(db, OPENED, [event() for _ in range(5)])
    db.write_now(lambda conn: store.end_epoch(conn, 0, last, 2, "lost", 9))
    archive(db, Position(2, -1), [event() for _ in range(5)])
    everything = [a.position for a in read(db)]
    for size in (1, 3, 10):
        pages, at = [], START
        while page := read(db, at, size):
            at = page[-1].position
            pages += [a.position for a in page]
        assert pages == everything
    assert [a.position for a in read(db, Position(1, 3), 10, Position(2, 1))] == [(1, 4), (2, 0), (2, 1)]
    assert read(db, Position(2, 4)) == []


def test_tenants_are_walls(db: Database) -> None:
    archive(db, OPENED, [event("r1", "run.started", org=org, id=f"{org}-{n}") for org in ("a", "b") for n in (1, 2)])

    def named(conn: Connection, org: str) -> list[list[str]]:
        run = [a.event().org for a in queries.read_run(conn, org, "r1", None, 10)]
        starts = [s.run for s in queries.read_runs(conn, org, 10)]
        return [run, starts, [r for _, r in queries.read_attempts(conn, [(org, "r1")]).get((org, "r1"), [])]]

    assert db.read_now(lambda conn: named(conn, "a")) == [["a", "a"], ["r1", "r1"], ["r1", "r1"]]
    assert db.read_now(lambda conn: named(conn, "c")) == [[], [], []]


def test_the_events_of_a_run_in_pages(db: Database) -> None:
    """C38: stable pages, over partitions too."""
    archive(db, OPENED, [event(f"r{n % 2}") for n in range(10)])

    def other_partition(conn: Connection) -> None:
        store.end_epoch(conn, 1, START, 1, "first", 0)
        store.archive_batch(conn, 1, OPENED, after(OPENED, [event("r1"), event("r1")]), 7)

    db.write_now(other_partition)

    def page(last: tuple[int, Position] | None) -> list[tuple[int, Position]]:
        found = db.read_now(lambda conn: queries.read_run(conn, "default", "r1", last, 4))
        return [(a.partition, a.position) for a in found]

    pages = page(None)
    while more := page(pages[-1]):
        pages += more
    assert pages == [*((0, (1, n)) for n in (1, 3, 5, 7, 9)), (1, (1, 0)), (1, (1, 1))]


def test_what_append_asks(db: Database) -> None:
    started = [event(f"r{n}", "run.started", task="t", id=f"s{n}", data={"attempt": n}) for n in (1, 2)]
    steps = [event("r1", task="t", seq=n) for n in (1, 2, 3)] + [event("r2", task="t")]
    archive(db, OPENED, [*started, *steps, started[0]])

    def ask(conn: Connection) -> tuple[Any, ...]:
        identity = ("default", "task/t", "s2")
        return (
            queries.read_ids(conn, [identity, ("default", "task/t", "never"), ("other", "task/t", "s2")]),
            queries.read_attempts(conn, [("default", "t"), ("default", "never")]),
            queries.read_last_seqs(conn, [("default", "t", r) for r in ("r1", "r2", "never")]),
        )

    ids, attempts, seqs = db.read_now(ask)
    assert ids == {("default", "task/t", "s2"): First(Position(1, 1), started[1].digest)}
    assert attempts == {("default", "t"): [(1, "r1"), (2, "r2")]}
    assert seqs == {("default", "t", "r1"): 3}


def test_recent_runs_newest_first(db: Database) -> None:
    at = OPENED
    for n in range(3):
        at = archive(db, at, [event(f"r{n}", "run.started", task=f"t{n % 2}", user="u")], received_ms=n)
    runs = db.read_now(lambda conn: queries.read_runs(conn, "default", 2))
    assert [(r.run, r.task, r.user, r.received_ms) for r in runs] == [("r2", "t0", "u", 2), ("r1", "t1", "u", 1)]
    of_task = db.read_now(lambda conn: queries.read_runs(conn, "default", 9, "t0"))
    assert [r.run for r in of_task] == ["r2", "r0"]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT max(seq) FROM event_log WHERE org = 'a' AND run = 'r7' AND event_log.run <> ''", "event_log_run"),
        ("SELECT run FROM event_log WHERE org = 'a' AND task = 't7' AND type = 'run.started'", "event_log_attempts"),
        (
            "SELECT run FROM event_log WHERE org = 'a' AND type = 'run.started' ORDER BY received_ms DESC LIMIT 3",
            "event_log_recent_runs",
        ),
    ],
)
def test_reads_by_name_use_their_index(db: Database, query: str, index: str) -> None:
    def plan(conn: Connection) -> str:
        starts = [event(f"r{n}", "run.started", org="a", task=f"t{n}") for n in range(300)]
        store.archive_batch(conn, 0, OPENED, after(OPENED, starts), 7)
        conn.execute(text("ANALYZE"))
        if db.dialect == "sqlite":
            return "\n".join(row[3] for row in conn.execute(text(f"EXPLAIN QUERY PLAN {query}")))
        return "\n".join(conn.execute(text(f"EXPLAIN {query}")).scalars())

    assert index in db.write_now(plan)


# --- refused events --------------------------------------------------------------------------------------------------


def test_refused_events_are_kept_cut_to_size_and_apart_by_org(db: Database) -> None:
    raws: list[Any] = [{"id": "e1", "type": "t\x00", "data": "x" * 100_000}, b"\xff\x00{", 7, {"id": 5, "s": "\ud800"}]
    kept = [
        refusal_of(raw, org="o", source="inbox", code="bad", field="f", reason="why \x00", received_ms=n)
        for n, raw in enumerate(raws)
    ]
    db.write_now(lambda conn: keep_refusals(conn, kept))
    found = db.read_now(lambda conn: read_refusals(conn, "o"))
    assert [k.refusal for k in reversed(found)] == kept
    assert [k.refusal.event_type for k in found] == ["", "", "", "t�"]
    assert max(len(k.refusal.raw) for k in found) == 16_384
    page = db.read_now(lambda conn: read_refusals(conn, "o", before=found[1].number, limit=1))
    assert page == [found[2]]
    assert db.read_now(lambda conn: read_refusals(conn, "other")) == []
    unstorable = refusal_of({}, org="\ud800\0", source="inbox", code="bad", field="", reason="", received_ms=1)
    db.write_now(lambda conn: keep_refusals(conn, [unstorable]))
    assert len(db.read_now(lambda conn: read_refusals(conn, "\ufffd\ufffd"))) == 1


def test_refused_events_that_may_name_somebody_are_forgotten(db: Database) -> None:
    """However they were kept: as JSON, within JSON, as Python shows them, or cut before the name."""
    name = 'Zoë "z" O\'Hara'
    own = [
        {"id": "plain", "user": name}, {"id": "python", "user": name, "s": "\ud800"},
        {"id": "cut", "data": "x" * 20_000, "user": name}, {"id": "within", "event": json.dumps({"user": name})},
        {"id": "raw", "event": json.dumps({"user": name}, ensure_ascii=False)[:-1]},
    ]  # fmt: skip
    others = [{"id": "other", "user": "Zoë", "data": {"of": "Zoë O'Hara"}}, {"id": "none"}]

    def left(org: str = "o") -> list[str]:
        return [k.refusal.event_id for k in db.read_now(lambda conn: read_refusals(conn, org))][::-1]

    kept = [
        refusal_of(raw, org=org, source="http", code="bad", field="", reason="", received_ms=1)
        for raw, org in [*((raw, "o") for raw in (*own, *others)), (own[0], "elsewhere")]
    ]
    db.write_now(lambda conn: keep_refusals(conn, kept))
    assert db.write_now(lambda conn: drop_refusals(conn, "o", {name})) == len(own)
    assert left() == ["other", "none"]
    assert db.write_now(lambda conn: drop_refusals(conn, "o", {"Zoë"})) == 1
    assert db.write_now(lambda conn: drop_refusals(conn, "o", None)) == 1
    assert (left(), left("elsewhere")) == ([], ["plain"])
