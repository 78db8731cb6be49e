"""The calibrator over a real archive: once for each slot, whoever looks; by evidence, and by a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, create_engine

from events import door
from events.archive.reader import Archive
from events.database import Database
from events.event import Event
from projections.beliefs import BELIEFS_PROJECTION
from projections.queries.beliefs import belief_document
from projections.queries.confidence import DEFAULT_RULES
from projections.settlements import SETTLEMENTS_PROJECTION
from services.calibrating.calibrator import Calibration, Calibrator
from services.models.client import Models
from services.models.routes import Route, Routes
from services.schedule import Schedule
from tests.integration.reactor_lab import PARTITIONS, ArchiveOutlet, put, sqlite_log, stored, wait_for
from tests.integration.test_curator import scopes
from tests.model_server import ModelServer, model_server, problem, says
from tests.unit.fold_runner import Folded

SLOT = datetime(2026, 5, 3, 3, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with sqlite_log(tmp_path / "stores") as log:
        yield log


def reading(db: Database) -> Callable[[Callable[[Connection], Any]], Any]:
    """Reads beliefs as the log makes them now."""

    async def read(work: Callable[[Connection], Any]) -> Any:
        engine = create_engine("sqlite://")
        with engine.connect() as conn:
            BELIEFS_PROJECTION.tables[0].metadata.create_all(conn)
            Folded(BELIEFS_PROJECTION).fold(scopes(db)).store(conn)
            found = work(conn)
        engine.dispose()
        return found

    return read


def calibration(db: Database, models: Models | None = None, **more: Any) -> Calibration:
    return Calibration(
        reading(db), Archive(db), ArchiveOutlet(db), PARTITIONS, DEFAULT_RULES, models or Models(), **more
    )


def review(db: Database, slot: datetime = SLOT, **more: Any) -> dict[str, int]:
    return asyncio.run(calibration(db, **more).review(slot))


def evidence(belief: str, day: int, supports: bool = True, **names: Any) -> Event:
    data = {"belief": belief, "supports": supports, "scope": "agent" if "user" not in names else "user"}
    raw = {"id": f"{belief}-{day}-{names}", "type": "belief.verified", "time": f"2026-04-{day:02}T10:00:00Z"}
    return door.admit({**raw, "agent": "coder", "data": data, **names})


def reviews(db: Database) -> dict[str, dict[str, Any]]:
    found = [orjson.loads(event.data) for event in stored(db, "belief.reviewed")]
    assert len({one["belief"] for one in found}) == len(found), "each belief once"
    return {one["belief"]: one for one in found}


def test_each_candidate_is_looked_at_once_a_slot_whoever_looks(db: Database) -> None:
    """Two at once and one after them leave one result; no count, no confidence and no time of a check changes."""
    put(db, evidence("b1", 20), evidence("b2", 20), evidence("b2", 21, False), evidence("b2", 22, False))
    put(db, evidence("b3", 1, user="u1"), evidence("b4", 28, org="other"))

    async def both() -> None:
        await asyncio.gather(*(calibration(db).review(SLOT) for _ in range(2)))

    before = document(db, "b1")
    asyncio.run(both())
    assert review(db) == {}
    found = reviews(db)
    assert {name: (one["verdict"], one["by"]) for name, one in found.items() if name != "b2"} == {
        "b1": ("holds", "evidence"), "b3": ("untouched", "evidence"), "b4": ("holds", "evidence")
    }  # fmt: skip
    after = document(db, "b1")
    names = ("confidence", "supports", "against", "status", "last_verified")
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert review(db, SLOT + timedelta(weeks=1)).keys() <= {"holds", "doubtful", "untouched"}


def document(db: Database, belief: str) -> dict[str, Any]:
    work = asyncio.run(reading(db)(lambda conn: belief_document(conn, "default", "agent/coder", belief, now=SLOT)))
    assert isinstance(work, dict)
    return work


def test_the_evidence_of_later_days_is_not_known_at_a_slot(db: Database) -> None:
    put(db, evidence("b1", 20))
    assert review(db, SLOT - timedelta(weeks=4)) == {}


def test_an_org_asks_for_its_own(db: Database) -> None:
    put(db, evidence("b1", 20), evidence("b2", 20, org="other"))
    assert review(db, org="other") == {"holds": 1}
    assert reviews(db).keys() == {"b2"}


def routed(server: ModelServer, **budget: int) -> Models:
    return Models(Routes(models=[Route(model="judge", base_url=server.url)], tokens_a_day=budget))


def test_a_model_looks_where_one_is_named(db: Database) -> None:
    """Its verdict, tokens and latency are recorded; the evidence is quoted as data; a verdict that holds touches it."""
    put(db, evidence("b1", 20), evidence("b2", 20))
    with model_server() as server:
        server.plan += [says(json.dumps({"verdict": "holds", "reason": "borne out"})), says("I think so")]

        async def asked() -> dict[str, int]:
            models = routed(server)
            found = await calibration(db, models, model="judge").review(SLOT)
            await models.close()
            return found

        assert asyncio.run(asked()) == {"holds": 1, "untouched": 1}
        shown = server.requests[0]["messages"][1]["content"]
    assert shown.splitlines()[0] == shown.splitlines()[-1]
    by = {one["verdict"]: one for one in reviews(db).values()}
    assert by["untouched"]["detail"] == "the model's answer was no verdict"
    told = by["holds"]
    spent = Folded(SETTLEMENTS_PROJECTION).fold(scopes(db)).table("model_days")
    assert [(day["day"], day["calls"], day["tokens"]) for day in spent] == [("2026-05-03", 2, 240)], (
        "both were paid for"
    )
    assert (told["tokens_in"], told["tokens_out"], told["detail"]) == (100, 20, "borne out")
    assert told["latency_ms"] > 0
    assert document(db, told["belief"])["last_verified"] == SLOT.isoformat()


def test_a_model_that_cannot_be_asked_leaves_it_to_the_evidence(db: Database) -> None:
    put(db, evidence("b1", 20))
    with model_server() as server:
        server.plan.append(problem(500))

        async def asked() -> None:
            for budget in ({}, {"*": 0}):
                models = routed(server, **budget)
                await calibration(db, models, model="judge").review(SLOT)
                await models.close()

        asyncio.run(asked())
        assert len(server.requests) <= 1
    assert reviews(db)["b1"]["by"] == "evidence"


def test_what_was_missed_while_away_is_looked_at_at_the_start_once(db: Database) -> None:
    put(db, evidence("b1", 20))
    schedule = Schedule.parse("daily 03:00")
    assert schedule is not None

    async def served() -> None:
        stopping = asyncio.Event()
        ones = [Calibrator(db, calibration(db), schedule, owner, lease_s=0.5) for owner in ("w1", "w2")]
        tasks = [asyncio.create_task(one.run(stopping)) for one in ones]
        await wait_for(lambda: bool(stored(db, "belief.reviewed")), tasks)
        stopping.set()
        await asyncio.gather(*tasks)

    asyncio.run(served())
    assert reviews(db).keys() == {"b1"}
