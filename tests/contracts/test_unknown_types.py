"""Event types that nobody knows are kept, and counted as they are archived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from events.archive import store
from events.archive.unknown_types import UnknownType, count_all_unknown, read_unknown
from events.database import Database, Stores
from events.door import admit
from events.event import Event, Position
from migrations import downgrade, migrate


@pytest.fixture
def db(stores: Stores) -> Iterator[Database]:
    db = stores.log()
    migrate(db)
    db.write_now(lambda conn: store.open_log(conn, 1, 0))
    yield db
    db.close()


def event(id_: str, type_: str, org: str = "default", **members: object) -> Event:
    return admit({"id": id_, "type": type_, "org": org, "task": "t", "run": "r", "data": {}, **members})


def archive(db: Database, first: int, received_ms: int, *events: Event) -> None:
    entries = [(Position(0, first + index), each) for index, each in enumerate(events)]
    expected = Position(0, first - 1)
    db.write_now(lambda conn: store.archive_batch(conn, 0, expected, entries, received_ms))


def test_unknown_types_are_counted_once_an_event_and_by_org(db: Database) -> None:
    """C12: unknown ones are kept and counted; a repeated one is no other; what is known is not counted."""
    archive(db, 0, 1000, event("a", "step.rated"), event("b", "step.rated"), event("c", "run.heartbeat"))
    archive(db, 3, 2000, event("a", "step.rated"), event("d", "step.rated"), event("e", "x.y", "other"))
    assert db.read_now(lambda conn: read_unknown(conn, 10)) == [
        UnknownType("step.rated", 3, 1000, 2000),
        UnknownType("x.y", 1, 2000, 2000),
    ]
    assert db.read_now(lambda conn: read_unknown(conn, 10, "other")) == [UnknownType("x.y", 1, 2000, 2000)]
    assert db.read_now(lambda conn: read_unknown(conn, 10, "third")) == []
    assert db.read_now(lambda conn: read_unknown(conn, 1)) == [UnknownType("step.rated", 3, 1000, 2000)]
    assert db.read_now(count_all_unknown) == 4


def test_what_was_archived_before_there_was_a_count_is_counted_by_the_migration(db: Database) -> None:
    archive(db, 0, 1000, event("a", "step.rated"), event("b", "run.heartbeat"), event("a", "step.rated"))
    downgrade(db, "0001")
    migrate(db)
    assert db.read_now(lambda conn: read_unknown(conn, 10)) == [UnknownType("step.rated", 1, 1000, 1000)]


def test_a_type_that_the_code_has_come_to_know_is_unknown_no_more(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(db, 0, 1000, event("a", "step.rated"))
    monkeypatch.setattr("events.archive.unknown_types.EVENT_TYPES", {"step.rated": None})
    assert db.read_now(lambda conn: read_unknown(conn, 10)) == []
    assert db.read_now(count_all_unknown) == 0
