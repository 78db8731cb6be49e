"""When a user is erased, what an agent learned from that user's runs goes, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import orjson
import pytest

from events import door
from events.archive import queries
from events.archive.reader import Archive, Archived
from events.database import Database
from events.event import START
from events.types.belief import LAST_WORD
from projections.beliefs import BELIEFS_PROJECTION
from services.promotion.pieces import of_path
from services.promotion.rulebook import Rulebook
from services.reactors.forgetter import FORGETTER
from services.reactors.hindsight import HINDSIGHT
from services.reactors.reactor import Later, Reaction, Reactor, read_recorded
from tests.integration.reactor_lab import PARTITIONS, ArchiveOutlet, put, run_events, sqlite_log, stored
from tests.unit.fold_runner import Folded, event, record

AT = "2026-03-01T10:00:00Z"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "stores", HINDSIGHT, FORGETTER) as log:
        yield log


def log_of(db: Database) -> list[Archived]:
    return db.read_now(
        lambda conn: [a for p in range(PARTITIONS) for a in queries.read_log(conn, p, START, 1_000, None)]
    )


def react(db: Database, reactor: Reactor) -> None:
    """React to everything in the log."""

    async def work() -> None:
        for archived in log_of(db):
            recorded = read_recorded(archived)
            if archived.type in reactor.handles and recorded is not None:
                answer = await reactor.react(Reaction(reactor.name, archived, recorded, Archive(db)))
                assert not isinstance(answer, Later)
                await ArchiveOutlet(db).append(answer)

    asyncio.run(work())


def lived(db: Database, *runs: tuple[str, str]) -> None:
    for run, user in runs:
        put(db, *(msgspec.structs.replace(event, user=user) for event in run_events(run)))


def erase(db: Database, user: str) -> None:
    for partition in range(PARTITIONS):
        data = {"level": "user", "subject": user, "partition": partition}
        put(db, door.admit({"id": f"erase-{user}-{partition}", "type": "scope.erased", "data": data}))


def beliefs(db: Database, seed: int = 0) -> Folded:
    """The read model, folded in some order."""
    found = [recorded for archived in log_of(db) if (recorded := read_recorded(archived)) is not None]
    Random(seed).shuffle(found)
    return Folded(BELIEFS_PROJECTION).fold(found)


def supports(folded: Folded) -> dict[str, Any]:
    rows = folded.table("belief_counts", key="agent/coder")
    return {row["belief"]: row["success"] for row in rows if row["belief"].startswith("tool/")}


def test_the_counts_that_came_from_an_erased_user_go(db: Database) -> None:
    lived(db, ("r1", "ada"), ("r2", "bob"), ("r3", "ada"))
    react(db, HINDSIGHT)
    assert supports(beliefs(db)) == {"tool/bash": 3}
    erase(db, "ada")
    react(db, FORGETTER)
    after = beliefs(db)
    assert supports(after) == {"tool/bash": 1}
    assert [row["run"] for row in after.table("evidence", key="agent/coder") if row["belief"] == "tool/bash"] == ["r2"]
    sheets = {row["run_id"]: row["sheet"] for row in after.table("experiences", key="user/ada")}
    assert sheets == {"r1": {}, "r3": {}}
    assert beliefs(db, seed=5).dump() == after.dump(), "whatever order the events arrive in"
    told = len(stored(db, "experience.recorded"))
    react(db, FORGETTER)
    assert len(stored(db, "experience.recorded")) == told, "a reaction that is tried again changes nothing"


def test_what_the_runs_said_of_other_beliefs_is_withdrawn(db: Database) -> None:
    lived(db, ("r1", "ada"), ("r2", "bob"))
    react(db, HINDSIGHT)
    for run in ("r1", "r2"):
        data = {"belief": "rule/1", "supports": True, "source": f"run/{run}", "scope": "agent"}
        put(db, door.admit({"id": f"v-{run}", "type": "belief.verified", "agent": "coder", "time": AT, "data": data}))
    erase(db, "ada")
    react(db, FORGETTER)
    (rule,) = (row for row in beliefs(db).table("beliefs", key="agent/coder") if row["belief"] == "rule/1")
    assert (rule["evidence"], [entry[3] for entry in rule["latest"]]) == (1, [1, 0])


def test_a_derivation_that_comes_after_the_erasure_changes_nothing(db: Database) -> None:
    lived(db, ("r1", "ada"), ("r2", "bob"))
    erase(db, "ada")
    react(db, FORGETTER)
    react(db, HINDSIGHT)
    assert supports(beliefs(db)) == {"tool/bash": 1}
    words = [orjson.loads(event.data) for event in stored(db, "experience.recorded")]
    assert {data["run"] for data in words if data["deriver_version"] == LAST_WORD} == {"r1"}


def test_an_erasure_stays_within_its_tenant_and_its_time(db: Database) -> None:
    lived(db, ("r1", "ada"))
    elsewhere = [msgspec.structs.replace(event, org="other", user="ada") for event in run_events("r1")]
    put(db, *elsewhere)
    erase(db, "ada")
    lived(db, ("r2", "ada"))
    react(db, FORGETTER)
    react(db, HINDSIGHT)
    folded = beliefs(db)
    assert supports(folded) == {"tool/bash": 1}, "a run after the erasure counts again"
    assert [row["evidence"] for row in folded.table("beliefs", org="other") if row["belief"] == "tool/bash"] == [1]


def test_a_promoter_counts_no_run_that_was_taken_back() -> None:
    known = Rulebook()
    raws = [
        {"run": "r1", "deriver_version": 1, "path": "grep", "path_label": "fatal_failure"},
        {"run": "r1", "deriver_version": LAST_WORD},
        {"run": "r1", "deriver_version": 2, "path": "grep", "path_label": "fatal_failure"},
        {"run": "r2", "deriver_version": 1, "path": "grep", "path_label": "success"},
        *({"run": f"r{n}", "deriver_version": 1, "path": "grep", "path_label": "fatal_failure"} for n in (3, 4, 5)),
    ]
    known.advance(record(event("experience.recorded", n, agent="coder", data={**raw, "scope": "agent"})
                         for n, raw in enumerate(raws)))  # fmt: skip
    assert [tried.run for tried in of_path("grep", known)] == ["r2", "r3", "r4", "r5"]
