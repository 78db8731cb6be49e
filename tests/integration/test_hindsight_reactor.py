"""Hindsight over a real archive: judged later, derived again by newer code, and nothing else done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection

from events import door
from events.archive import queries
from events.archive.reader import Archive, Archived
from events.database import Database
from events.event import START, Event, Position
from events.types.belief import owner_of
from services.reactors.checkpoints import advance, introduce, take_over
from services.reactors.hindsight import HINDSIGHT
from services.reactors.reactor import Later, Reaction, Reactor, read_recorded
from services.reactors.settler import SETTLER
from tests.integration.reactor_lab import PARTITIONS, ArchiveOutlet, put, run_events, sqlite_log, stored


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "stores", SETTLER, HINDSIGHT) as log:
        yield log


def looked_back(db: Database) -> None:
    """React to everything in the log, as one does that reads it from the start."""

    async def react() -> None:
        for archived in read_all(db):
            recorded = read_recorded(archived)
            if archived.type in HINDSIGHT.handles and recorded is not None:
                reaction = Reaction(HINDSIGHT.name, archived, recorded, Archive(db))
                answer = await HINDSIGHT.react(reaction)
                assert not isinstance(answer, Later)
                await ArchiveOutlet(db).append(answer)

    asyncio.run(react())


def read_all(db: Database) -> list[Archived]:
    return db.read_now(
        lambda conn: [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 1_000, None)]
    )


def derived(db: Database, scope: str) -> list[dict[str, Any]]:
    found = [orjson.loads(event.data) for event in stored(db, "experience.recorded")]
    return sorted((data for data in found if data["scope"] == scope), key=lambda data: int(data.get("revision", 1)))


def feedback(n: int, time: str, **data: Any) -> Event:
    """Of somebody else than the run's user."""
    raw = {"id": f"f{n}", "type": "feedback.given", "time": time, "run": "r1", "task": "task-r1", "user": "boss"}
    return door.admit({**raw, "data": {"score": 0, "by": "boss", **data}})


def test_feedback_a_month_later_is_the_next_revision_of_the_same_scopes(db: Database) -> None:
    """C47, C5: the same feedback twice, and reading again, add nothing. The run's scopes stay those of its user."""
    put(db, *run_events("r1"))
    looked_back(db)
    ended = stored(db, "run.terminated")[0].time
    put(db, feedback(1, "2027-04-01T10:00:00Z"), feedback(2, "2027-04-01T10:00:01Z"))
    looked_back(db)
    users, agents = derived(db, "user"), derived(db, "agent")
    assert [(one.get("revision", 1), one["sheet"]["outcome"]) for one in users] == [(1, "completed"), (2, "failed")]
    assert [one["path_label"] for one in agents] == ["success", "fatal_failure"]
    assert {event.key for event in stored(db, "experience.recorded")} == {"user/u1", "agent/coder"}
    assert {event.time for event in stored(db, "experience.recorded")} == {ended}
    assert {one["owner"] for one in agents} == {owner_of("default", "u1")}
    assert "boss" not in orjson.dumps(agents).decode()


def test_a_lost_run_that_goes_on_is_derived_again_at_its_true_end(db: Database) -> None:
    *before, lost = run_events("r1", reason="lost")
    put(db, *before, lost)
    looked_back(db)
    common = {name: getattr(lost, name) for name in ("run", "task", "session", "user", "agent")}
    went_on = [("run.heartbeat", {}), ("run.terminated", {"reason": "end_turn"})]
    put(db, *[door.admit({**common, "id": f"on{n}", "type": t, "data": d}) for n, (t, d) in enumerate(went_on)])
    looked_back(db)
    assert [(one.get("revision", 1), one["path_label"]) for one in derived(db, "agent")] == [
        (1, "unfinished"),
        (2, "success"),
    ]


def test_newer_code_reads_the_log_from_its_start_and_the_other_reactors_go_on(db: Database) -> None:
    """A new version derives every run again, with a checkpoint of its own, beside workers with former code."""
    put(db, *[event for n in range(4) for event in run_events(f"r{n}")])
    newer = replace(HINDSIGHT, version=HINDSIGHT.version + 1)
    marks = db.read_now(queries.read_watermarks)
    for reactor in (HINDSIGHT, SETTLER):
        for partition in range(PARTITIONS):
            at_end = partial(caught_up, reactor=reactor, partition=partition, mark=marks[partition])
            db.write_now(at_end)
    db.write_now(lambda conn: introduce(conn, [HINDSIGHT, newer, SETTLER]))
    for partition in range(PARTITIONS):
        claims = [
            db.write_now(partial(take_over, reactor=key, partition=partition)) for key in (newer.key, SETTLER.key)
        ]
        assert [claim.position for claim in claims] == [START, marks[partition]]
    assert len({HINDSIGHT.key, newer.key, HINDSIGHT.name}) == 3


def caught_up(conn: Connection, reactor: Reactor, partition: int, mark: Position) -> None:
    advance(conn, take_over(conn, reactor.key, partition), mark)


def test_reading_again_derives_the_same_events(db: Database) -> None:
    """C5."""
    put(db, *run_events("r1"), feedback(1, "2027-04-01T10:00:00Z"))
    looked_back(db)
    first = stored(db, "experience.recorded")
    looked_back(db)
    assert [a.verdict for a in read_all(db) if a.type == "experience.recorded"].count("effective") == len(first) == 4


def test_a_run_that_nobody_can_be_named_for_leaves_only_what_its_agent_learns(db: Database) -> None:
    """C14: and feedback on a run that never started leaves nothing."""
    stray = {"id": "f1", "type": "feedback.given", "run": "nowhere", "task": "nowhere", "data": {"score": 0}}
    nameless = [replace_names(event) for event in run_events("r1")]
    put(db, door.admit(stray), *nameless)
    looked_back(db)
    assert [event.key for event in stored(db, "experience.recorded")] == ["agent/coder"]
    assert derived(db, "agent")[0]["owner"] == ""


def replace_names(event: Event) -> Event:
    raw = {"id": event.id, "type": event.type, "run": event.run, "task": event.task, "agent": event.agent}
    return door.admit({**raw, "data": orjson.loads(event.data)})
