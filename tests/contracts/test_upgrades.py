"""Upgrades, from the stores that former versions wrote: nothing is lost, reads go on, what waited is picked up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Connection, Double, MetaData, Table, Text, exists, func, select

from events.archive.unknown_types import read_unknown
from events.database import Database, Stores
from events.errors import Refused, Transient
from events.event import Recorded
from events.registry import EventType
from events.types.base import Payload
from migrations import current, downgrade, migrate
from projections import generations
from projections.engine import checkpoints, ownership
from projections.engine.birth import ensure_first_generation
from projections.engine.dead_letters import list_letters
from projections.engine.projector import Projector
from projections.projection import Json, Projection, Put, Rows, read_model_table
from projections.queries.tasks import task_document
from projections.read_models import Read, ReadModels
from projections.rebuilding.rebuild import drop_old, rebuild, rollback
from projections.rebuilding.replaced import drop_replaced
from projections.rebuilding.verify import verify
from projections.registry import PROJECTIONS
from services.upgrades import is_due
from tests.golden_store import STORES, load
from tests.upgrades import goals_v1, goals_v2
from tests.upgrades.goals_v2 import GOALS, OBJECTIVES, PROGRESS, TITLES, knowing

T = TypeVar("T")
ACME_BEFORE = {"task/newer": ("now", 0), "task/plain": ("ship it", 2), "task/poison": ("first", 0)}
"""Goal and steps done, as version 1 folded them: two keys stand still behind an event that it could not take."""

ACME_AFTER = {
    "task/newer": ("later", "nobody", 1),
    "task/plain": ("ship it", "nobody", 2),
    "task/poison": ("third", "nobody", 1),
    "task/unknown": (None, "nobody", 1),
}


@pytest.fixture(params=STORES)
def old(request: pytest.FixtureRequest, stores: Stores) -> Stores:
    """The stores of a former version, as it left them."""
    load(request.param, stores)
    return stores


@pytest.fixture
def log(old: Stores) -> Iterator[Database]:
    """Its log, migrated."""
    log = old.log()
    migrate(log)
    yield log
    log.close()


async def read(stores: Stores, log: Database, projection: Projection, work: Callable[[Connection], T]) -> Read[T]:
    models = ReadModels([projection], stores, log)
    try:
        return await models.read(projection.name, work)
    finally:
        models.close()


def rows(conn: Connection, table: Table, org: str = "acme") -> dict[str, tuple[Any, ...]]:
    return {key: tuple(rest) for _, key, *rest in conn.execute(select(table).where(table.c.org == org))}


def rows_of(stores: Stores, log: Database, projection: Projection, org: str = "acme") -> Read[Mapping[str, Any]]:
    return asyncio.run(read(stores, log, projection, partial(rows, table=projection.tables[0], org=org)))


def letters_of(stores: Stores, log: Database, projection: Projection) -> list[tuple[str, str]]:
    found = asyncio.run(read(stores, log, projection, list_letters))
    return [(letter.event_id, letter.cause) for letter in found.value]


def states(log: Database, name: str) -> dict[int, str]:
    return {one.number: one.state for one in log.read_now(partial(generations.list_all, projection=name))}


# -- the log store ----------------------------------------------------------------------------------------------------


def test_a_store_of_a_former_version_migrates_up_and_is_what_it_was(old: Stores, log: Database) -> None:
    revision = current(log)
    unknown = {one.type: one.events for one in log.read_now(partial(read_unknown, limit=100, org="acme"))}
    assert unknown == {"goal.set": 6, "step.rated": 1}, "what was unknown before they were counted"
    for projection in PROJECTIONS.values():
        known = bool(states(log, projection.name))  # or a read model that the former version did not have
        before = rows_of(old, log, projection).value.keys() if known else set()
        rebuild(projection, old, log)
        assert verify(projection, old, log).equal
        assert rows_of(old, log, projection).value.keys() == before
    assert states(log, "task_state") == {1: "retired", 2: "active"}
    assert states(log, "threads") == {1: "active"}
    downgrade(log, "0001")
    migrate(log)
    assert current(log) == revision
    assert verify(PROJECTIONS["task_state"], old, log).equal


# -- a read model that changes its shape, its name, or falls apart ----------------------------------------------------


def test_a_renamed_column_and_a_required_field(old: Stores, log: Database) -> None:
    """C11: the stored rows have ``goal``, the new code reads ``objective`` and requires ``owner``: replayed."""
    with knowing(goals_v2.TYPE):
        before = rows_of(old, log, GOALS)
        assert (before.generation, before.stale) == ("goals__g1", True)
        assert {key: row[::2] for key, row in before.value.items() if key in ACME_BEFORE} == ACME_BEFORE
        assert {row[1] for row in before.value.values()} == {None}, "nobody knows an owner yet"
        rebuild(GOALS, old, log, verify=True)
        after = rows_of(old, log, GOALS)
        assert (after.generation, after.stale, after.value) == ("goals__g2", False, ACME_AFTER)
        assert rows_of(old, log, GOALS, "globex").value == {"task/plain": ("of another organisation", "nobody", 0)}
        assert states(log, "goals") == {1: "retired", 2: "active"}
        assert [one.number for one in drop_old("goals", old, log, keep=0)] == [1]


def test_any_query_of_a_read_is_answered_by_tables_of_another_shape(old: Stores, log: Database) -> None:
    """Conditions, order, joins, counts; columns that are new, renamed or JSON; a table that is not there yet."""
    metadata = MetaData()
    goals = read_model_table(
        metadata, "aims", Column("aim", Text, info={"was": ("objective", "goal")}), Column("tags", Json),
        Column("weight", Double), Column("done", BigInteger), was=("objectives", "goals"),
    )  # fmt: skip
    more = read_model_table(metadata, "more", Column("item", Text, primary_key=True), Column("sure", Boolean))
    projection = Projection("aims", 1, (goals, more), frozenset({"step.completed"}), lambda *_: [], replaces=("goals",))

    def work(conn: Connection) -> list[Any]:
        of_acme = goals.c.org == "acme"
        pair = goals.outerjoin(more, (goals.c.org == more.c.org) & (goals.c.key == more.c.key))
        joined = select(goals.c.aim, more.c.sure).select_from(pair).where(of_acme, goals.c.aim == "ship it")
        weighty = select(func.count()).select_from(goals).where(goals.c.weight > 0.5)
        return [
            [row.aim for row in conn.execute(select(goals).where(of_acme, goals.c.done < 1).order_by(goals.c.aim))],
            conn.execute(select(goals).where(of_acme, goals.c.aim == "ship it")).mappings().one()["tags"],
            [tuple(row) for row in conn.execute(joined)],
            conn.execute(weighty).scalar_one(),
            conn.execute(select(func.sum(goals.c.done)).where(of_acme, goals.c.aim.is_not(None))).scalar_one(),
            conn.execute(select(exists().where(more.c.item == "x"))).scalar_one(),
            conn.execute(select(more)).all(),
        ]

    found = asyncio.run(read(old, log, projection, work)).value
    assert found[0] == ["first", "now"]
    assert found[1:] == [None, [("ship it", None)], 0, 2, False, []]


def test_what_cannot_be_read_of_other_code_is_told_and_passes(old: Stores, log: Database) -> None:
    def work(conn: Connection) -> Any:
        return [row.done + row.weight for row in conn.execute(select(table))]

    table = read_model_table(MetaData(), "goals", Column("done", BigInteger), Column("weight", BigInteger))
    with pytest.raises(Transient, match="goals__g1 was made by other code"):
        asyncio.run(read(old, log, Projection("goals", 2, (table,), frozenset({"step.completed"}), list), work))


def test_rolled_back_the_former_code_reads_and_folds_on(old: Stores, log: Database) -> None:
    with knowing(goals_v2.TYPE):
        rebuild(GOALS, old, log)
    with knowing(goals_v1.TYPE):
        former = goals_v1.GOALS
        meanwhile = rows_of(old, log, former)
        assert (meanwhile.generation, meanwhile.stale) == ("goals__g2", True)
        assert meanwhile.value["task/plain"] == (None, 2), "it has no `goal`, and this code does not know its new name"
        assert rollback("goals", old, log, former).number == 1
        back = rows_of(old, log, former)
        assert {key: row for key, row in back.value.items() if key in ACME_BEFORE} == ACME_BEFORE


@pytest.mark.parametrize("renamed", [OBJECTIVES, TITLES, PROGRESS], ids=lambda projection: str(projection.name))
def test_a_renamed_or_split_read_model_is_read_from_the_former_one_until_its_own_is_built(
    old: Stores, log: Database, renamed: Projection
) -> None:
    with knowing(goals_v2.TYPE):
        ensure_first_generation(renamed, old, log, "test")
        assert states(log, renamed.name) == {}, "no empty one that is read at once"
        before = rows_of(old, log, renamed)
        assert (before.generation, before.stale) == ("goals__g1", True)
        expected = {"objectives": ("ship it", None, 2), "titles": ("ship it",), "progress": (2,)}
        assert before.value["task/plain"] == expected[renamed.name]
        rebuild(renamed, old, log, verify=True)
        after = rows_of(old, log, renamed)
        assert (after.generation, after.stale) == (f"{renamed.name}__g1", False)
        expected = {"objectives": ("third", "nobody", 1), "titles": ("third",), "progress": (1,)}
        assert after.value["task/poison"] == expected[renamed.name]
    former = old.generation("goals__g1")
    assert not former.read_now(checkpoints.is_sealed)
    former.close()
    assert states(log, "goals") == {1: "active"}, "processes of the former code go on with it"


def test_what_was_replaced_is_dropped_when_nobody_needs_it(old: Stores, log: Database) -> None:
    with knowing(goals_v2.TYPE):
        with pytest.raises(Refused, match="still read from goals__g1"):
            drop_replaced(OBJECTIVES, old, log)
        rebuild(OBJECTIVES, old, log)
        log.write_now(lambda conn: ownership.join(conn, "goals__g1", "a worker of former code", 60))
        with pytest.raises(Refused, match="workers of former code"):
            drop_replaced(OBJECTIVES, old, log)
        log.write_now(lambda conn: ownership.leave(conn, "goals__g1", "a worker of former code"))
        assert [one.name for one in drop_replaced(OBJECTIVES, old, log)] == ["goals__g1"]
        assert states(log, "goals") == {1: "dropped"}
        assert rows_of(old, log, OBJECTIVES).value == ACME_AFTER
        assert drop_replaced(OBJECTIVES, old, log) == drop_replaced(GOALS, old, log) == []


def test_a_version_rebuilds_by_itself_only_what_it_never_had(old: Stores, log: Database) -> None:
    """Or two versions beside each other would rebuild in turns for ever."""
    with knowing(goals_v2.TYPE):
        assert [log.read_now(partial(is_due, projection=one)) for one in (GOALS, OBJECTIVES)] == [True, True]
        lease = ownership.rebuild_lease("goals")
        log.write_now(lambda conn: ownership.acquire(conn, lease, 0, "a builder", 60))
        assert not log.read_now(partial(is_due, projection=GOALS)), "somebody is at it"
        log.write_now(lambda conn: ownership.release(conn, lease, 0, "a builder"))
        log.write_now(lambda conn: generations.create(conn, GOALS))
        assert log.read_now(partial(is_due, projection=GOALS)), "a builder died"
        rebuild(GOALS, old, log)
        assert not log.read_now(partial(is_due, projection=GOALS))
    with knowing(goals_v1.TYPE):
        rollback("goals", old, log, goals_v1.GOALS)
    with knowing(goals_v2.TYPE):
        assert not log.read_now(partial(is_due, projection=GOALS)), "somebody went back from it"


# -- what the former code could not take ------------------------------------------------------------------------------


def test_what_was_parked_is_picked_up_in_order_by_code_that_can_take_it(old: Stores, log: Database) -> None:
    """C12, and upcasters v1 -> v2 -> v3: an event that was poison, and one that was newer than the code."""
    with knowing(goals_v1.TYPE):
        assert sorted(letters_of(old, log, goals_v1.GOALS)) == [
            ("newer-2", "newer_version"), ("newer-3", "waiting"),
            ("poison-2", "poison"), ("poison-3", "waiting"), ("poison-4", "waiting"),
        ]  # fmt: skip
    with knowing(goals_v2.TYPE):
        rebuild(GOALS, old, log)
        assert letters_of(old, log, GOALS) == []
        assert rows_of(old, log, GOALS).value == ACME_AFTER


def test_a_type_that_becomes_known_is_picked_up_from_the_start(old: Stores, log: Database) -> None:
    """C12: `step.rated` was stored and ignored; the run that it belongs to is finished all the same."""
    ratings = read_model_table(MetaData(), "ratings", Column("stars", BigInteger), Column("done", BigInteger))

    def apply(recorded: Recorded, rows: Rows) -> list[Put]:
        row = dict(rows.get("ratings") or {"stars": None, "done": 0})
        if isinstance(recorded.payload, Rated):
            return [Put("ratings", row | {"stars": recorded.payload.stars})]
        return [Put("ratings", row | {"done": row["done"] + 1})]

    document = partial(task_document, org="acme", task="unknown", now=datetime(2026, 3, 2, tzinfo=UTC))
    before = asyncio.run(read(old, log, PROJECTIONS["task_state"], document)).value
    assert before is not None and before["status"] == "completed"
    assert letters_of(old, log, PROJECTIONS["task_state"]) == []
    projection = Projection("ratings", 1, (ratings,), frozenset({"step.rated", "step.completed"}), apply)
    with knowing(EventType("step.rated", Rated, "task", version=3, upcast={1: dict, 2: dict})):
        rebuild(projection, old, log, verify=True)
        rated = {"task/unknown": (5, 1), "task/plain": (None, 2)}
        assert rows_of(old, log, projection).value == rated | dict.fromkeys(("task/newer", "task/poison"), (None, 1))


class Rated(Payload, frozen=True, kw_only=True):
    """A type that the former version did not know."""

    stars: int


def test_a_worker_of_other_code_says_stale_once_and_folds_nothing(
    old: Stores, log: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        projector = Projector([GOALS, OBJECTIVES], old, log, "new", poll_s=0.02)
        await projector.start()
        await asyncio.sleep(0.5)
        await projector.stop()
        assert projector.stale == {"goals", "objectives"}

    with knowing(goals_v1.TYPE):
        before = rows_of(old, log, goals_v1.GOALS).value
    with knowing(goals_v2.TYPE), caplog.at_level(logging.INFO):
        asyncio.run(run())
    said = [record.message for record in caplog.records if "stale" in record.message]
    assert len(said) == len(set(said)) == 2
    with knowing(goals_v1.TYPE):
        assert rows_of(old, log, goals_v1.GOALS).value == before
