"""Dead letters over both stores: what waits is picked up in order, a fault of the system parks nothing."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import select

from events.archive.queries import read_watermarks
from events.errors import Refused
from events.event import Recorded
from events.registry import EventType
from events.tokens import write_token
from projections.engine import dead_letters
from projections.engine.dead_letters import list_letters
from projections.engine.folder import PartitionFolder
from projections.engine.projector import Projector
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.projection import Rows
from projections.read_models import ReadModels
from projections.rebuilding.scope import Scope
from services.api import telling
from services.api.retrying import retry
from tests.contracts.engine_lab import NOTES, PARTITIONS, TOY, Lab, event, note, where
from tests.upgrades import goals_v2
from tests.upgrades.goals_v2 import GOALS, knowing


def new_store(lab: Lab, projection: Any) -> GenerationStore:
    store = GenerationStore(projection, lab.stores.generation(f"{projection.name}__g1"))
    store.create(PARTITIONS)
    return store


def fold(lab: Lab, store: GenerationStore, **options: Any) -> None:
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "w", **options)
        while folder.step().read:
            pass
        folder.hand_over()


def letters_of(store: GenerationStore) -> list[tuple[str, str]]:
    return sorted((one.event_id, one.cause) for one in store.db.read_now(list_letters))


def goal(id_: str, task: str, data: dict[str, Any], version: int) -> Any:
    return event("goal.set", id_, task, data, schemaversion=version)


def test_a_retry_goes_through_the_upcasters_of_the_code_that_runs(lab: Lab) -> None:
    """v1 -> v2 -> v3: an upcaster that cannot lift what was stored is mended; the key is then folded in order."""

    def broken(data: dict[str, Any]) -> dict[str, Any]:
        return {"objective": data["goals"]}

    store = new_store(lab, GOALS)
    faulty = EventType("goal.set", goals_v2.GoalSet, "task", version=3, upcast={**goals_v2.TYPE.upcast, 1: broken})
    with knowing(goals_v2.TYPE):
        lab.archive(
            goal("e1", "t", {"goal": "first"}, 1), event("step.completed", "e2", "t", {"step": "s"}),
            goal("e3", "t", {"objective": "second"}, 2), goal("e4", "u", {"objective": "third", "owner": "ada"}, 3),
        )  # fmt: skip
    with knowing(faulty):
        fold(lab, store)
        assert letters_of(store) == [("e1", "poison"), ("e2", "waiting"), ("e3", "waiting")]
        (shown,) = store.db.read_now(lambda conn: dead_letters.show(conn, "e1"))
        assert "could not be upcast to v3" in shown.error
    with knowing(goals_v2.TYPE):
        retried = dead_letters.retry(store, ArchiveSource(lab.log), ("default", "task/t"))
        assert (retried.folded, retried.left) == (3, [])
        rows = store.db.read_now(lambda conn: conn.execute(select(GOALS.tables[0])).all())
        assert {key: tuple(rest) for _, key, *rest in rows} == {
            "task/t": ("second", "nobody", 1),
            "task/u": ("third", "ada", 0),
        }
    store.db.close()


def test_what_is_newer_than_the_code_is_parked_at_once_and_without_a_word(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """C12: many keys whose only events are newer are no fault of the system, and unknown types none at all."""
    store = new_store(lab, TOY)
    lab.archive(*(note(f"e{i}", f"t{i}", "a", schemaversion=2) for i in range(100)))
    lab.archive(*(event("step.rated", f"u{i}", f"t{i}", schemaversion=3) for i in range(100)))
    with caplog.at_level(logging.DEBUG, "projections"):
        fold(lab, store, patience=5)
    assert [cause for _, cause in letters_of(store)] == ["newer_version"] * 100
    assert caplog.records == []
    store.db.close()


def test_an_event_that_cannot_be_folded_is_told_in_the_log_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody looks at the status. What waits for it, and what newer code will fold, are no news."""

    async def fold_all() -> None:
        projector = Projector([TOY], lab.stores, lab.log, "w", poll_s=0.02)
        models = ReadModels([TOY], lab.stores, lab.log)
        await projector.start()
        while True:
            (status,) = await models.status()
            if status.dead_letters == 3:
                break
            await asyncio.sleep(0.02)
        await projector.stop()
        models.close()

    lab.archive(note("e1", "t", "poison"), note("e2", "t", "a"), note("e3", "u", "a", schemaversion=2))
    with caplog.at_level(logging.WARNING, "projections"):
        asyncio.run(fold_all())
    (said,) = [record.getMessage() for record in caplog.records if "dead letter" in record.getMessage()]
    assert "1 new dead letter(s), toy:" in said and "(poison: " in said and "`refold deadletters list`" in said


def test_when_every_key_fails_the_projection_waits_visibly_and_goes_on_by_itself(lab: Lab) -> None:
    well = False
    able: dict[int, bool] = {}

    def apply(recorded: Recorded, rows: Rows) -> Any:
        if recorded.position.n == 0:  # a step that began before all was well fails as a whole
            able[recorded.partition] = well
        if not able[recorded.partition]:
            raise KeyError("a setting that is not there yet")
        return TOY.apply(recorded, rows)

    async def run() -> None:
        nonlocal well
        ill = replace(TOY, apply=apply)
        models = ReadModels([ill], lab.stores, lab.log)
        projector = Projector([ill], lab.stores, lab.log, "w", poll_s=0.02, lease_ttl_s=2.0)
        await asyncio.to_thread(lab.archive, *(note(f"e{i}", f"t{i}", "a", i) for i in range(120)))
        await projector.start()
        while True:
            (status,) = await models.status()
            if status.state == "paused":
                break
            await asyncio.sleep(0.02)
        assert "keys fail, none succeeds" in status.reason
        assert (status.dead_letters, status.parked_keys) == (0, 0)
        well = True
        marks = await lab.log.read(read_watermarks)
        token = write_token([(partition, mark) for partition, mark in marks.items() if mark.n >= 0])
        found = await models.read("toy", lambda conn: conn.execute(select(NOTES)).all(), after=token, timeout_s=60)
        assert (found.reached, len(found.value)) == (True, 120)
        (status,) = await models.status()
        assert (status.state, status.dead_letters) == ("live", 0)
        await projector.stop()
        models.close()

    asyncio.run(run())


def test_a_retry_of_what_other_code_made_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two versions of the code in one table would be rows of none."""
    told = BytesIO()
    monkeypatch.setattr(telling, "channel", lambda: told)  # the real one takes the standard output of this process

    async def fold_old() -> None:
        projector = Projector([TOY], lab.stores, lab.log, "w", poll_s=0.02)
        await projector.start()
        await projector.stop()

    lab.archive(note("e1", "t", "poison"))
    asyncio.run(fold_old())
    with pytest.raises(Refused, match="made by other code") as refused:
        retry(replace(TOY, version=2), lab.stores, lab.log, Scope("default"))
    assert refused.value.code == "stale"
    assert b'"code":"stale"' in told.getvalue()


def test_keys_on_which_processes_died_are_only_retried_by_name(lab: Lab) -> None:
    store = new_store(lab, TOY)
    _, deadly, _ = lab.archive(note("e1", "t", "poison"), note("e2", "u", "poison"), note("e3", "u", "a"))
    fold(lab, store)
    with_one_killed = "UPDATE dead_letters SET cause = 'killed' WHERE event_id = 'e2'"
    store.db.write_now(lambda conn: conn.exec_driver_sql(with_one_killed))
    assert store.db.read_now(dead_letters.parked_keys) == [("default", "task/t")]
    assert store.db.read_now(lambda conn: dead_letters.parked_keys(conn, "other")) == []
    found = store.db.read_now(lambda conn: dead_letters.find(conn, (where("u"), *deadly), "default"))
    assert found is not None and (found.event_id, found.cause) == ("e2", "killed")
    assert store.db.read_now(lambda conn: dead_letters.find(conn, (where("u"), *deadly), "other")) is None
    store.db.close()
