"""Position tokens: a read after one sees what was written, across swaps, roll-backs and epochs, or says so."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from events.archive.store import end_epoch, log_id
from events.database import Stores
from events.errors import Refused
from events.event import Position
from events.tokens import read_token, write_token
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.read_models import Read, ReadModels
from projections.rebuilding.rebuild import rebuild, rollback
from tests.contracts.engine_lab import NOTES, PARTITIONS, TOY, Lab, note, where


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    ensure_first_generation(TOY, lab.stores, lab.log, "test")
    yield lab
    lab.log.close()


@asynccontextmanager
async def models_of(lab: Lab) -> AsyncIterator[ReadModels]:
    models = ReadModels([TOY], lab.stores, lab.log)
    yield models
    models.close()


def fold(lab: Lab, *partitions: int, batch: int = 100) -> None:
    """Fold some partitions (all, when none is named) of the active generation, as a projector would."""
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None
    store = GenerationStore(TOY, lab.stores.generation(active.name))
    for partition in partitions or range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test", batch=batch)
        folder.step()
        folder.hand_over()
    store.db.close()


def written(lab: Lab, *tasks: str) -> str:
    """One more event of each task; the token of them all."""
    events = [note(f"e{time.monotonic_ns()}", task, "a", index) for index, task in enumerate(tasks)]
    positions = lab.archive(*events)
    return write_token(zip(map(where, tasks), positions, strict=True), lab.log.read_now(log_id))


def count(conn: Connection) -> int:
    """How often notes were written in all."""
    return sum(conn.execute(select(NOTES.c.version)).scalars())


def tasks_apart(number: int) -> list[str]:
    """Tasks of different partitions."""
    return list({where(f"t{i}"): f"t{i}" for i in range(100)}.values())[:number]


def test_a_token_of_several_partitions_waits_for_them_all(lab: Lab) -> None:
    tasks = tasks_apart(3)
    token = written(lab, *tasks)

    async def run() -> None:
        async with models_of(lab) as models:
            for folded, task in enumerate(tasks):
                early = await models.read("toy", count, after=token, timeout_s=0)
                assert (early.reached, early.value) == (False, folded)
                await asyncio.to_thread(fold, lab, where(task))
            found = await models.read("toy", count, after=token, timeout_s=0)
            assert (found.reached, found.value) == (True, 3)

    asyncio.run(run())


def test_waiting_is_bounded_and_ends_as_soon_as_it_can(lab: Lab) -> None:
    async def run() -> None:
        async with models_of(lab) as models:
            token = await asyncio.to_thread(written, lab, "t")
            began = time.monotonic()
            assert not (await models.read("toy", count, after=token, timeout_s=0.2)).reached
            assert 0.2 <= time.monotonic() - began < 60
            reading = asyncio.create_task(models.read("toy", count, after=token, timeout_s=60))
            await asyncio.to_thread(fold, lab)
            assert (await asyncio.wait_for(reading, 55)).reached

    asyncio.run(run())


def test_tokens_hold_across_epochs(lab: Lab) -> None:
    """An epoch that recovery ended: what was archived in it stays reached, what was lost is never said to be there."""
    partition = where("t")
    before = written(lab, "t")
    mark = lab.marks()[partition]
    identity = lab.log.read_now(log_id)
    void = write_token([(partition, Position(mark.epoch, mark.n + 1))], identity)  # on the log, never archived
    lab.log.write_now(lambda conn: end_epoch(conn, partition, mark, mark.epoch + 1, "test", 0))
    fold(lab)

    async def run() -> None:
        async with models_of(lab) as models:

            async def reached(token: str) -> bool:
                return (await models.read("toy", count, after=token, timeout_s=0)).reached

            after = await asyncio.to_thread(written, lab, "t")
            assert [await reached(token) for token in (before, void, after)] == [True, False, False]
            await asyncio.to_thread(fold, lab)
            assert [await reached(token) for token in (before, void, after)] == [True, False, True]

    asyncio.run(run())


BAD = {
    "no token": "rubbish!",
    "cut": "0.1-",
    "a blank behind it": "0.1-0 ",
    "signs": "0.-1-0",
    "a part left out": "0.1-0__1.1-0",
    "other digits": "٣.1-0",
    "only its log": "c0ffee00~",
    "too large": "0.1-" + "9" * 19,
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
def test_a_damaged_token_is_refused_at_once(lab: Lab, token: str) -> None:
    refused(lab, token, "bad_token")


def test_a_token_of_another_log_is_refused_at_once(lab: Lab) -> None:
    """Its positions would mean something else here."""
    refused(lab, write_token([(0, Position(1, 0))], "0" * 32), "foreign_token")
    refused(lab, write_token([(PARTITIONS, Position(1, 0))], lab.log.read_now(log_id)), "foreign_token")


def refused(lab: Lab, token: str, code: str) -> None:
    async def run() -> None:
        async with models_of(lab) as models:
            began = time.monotonic()
            with pytest.raises(Refused) as refusal:
                await models.read("toy", count, after=token, timeout_s=600)
            assert refusal.value.code == code
            assert time.monotonic() - began < 60

    asyncio.run(run())


def test_a_token_without_its_log_is_taken_as_one_of_ours(lab: Lab) -> None:
    """As those are that were given out before tokens named their log."""
    written(lab, "t")
    fold(lab)

    async def run() -> None:
        async with models_of(lab) as models:
            token = write_token([(where("t"), Position(1, 0))])
            assert (await models.read("toy", count, after=token, timeout_s=0)).reached

    asyncio.run(run())


ACTS = ["write", "write", "fold", "rebuild", "roll back"]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    acts=st.lists(st.sampled_from(["write", "write", "fold", "rebuild", "roll back"]), max_size=12), seed=st.integers()
)
def test_no_read_goes_back_whatever_is_swapped(tmp_path_factory: Any, acts: list[str], seed: int) -> None:
    """Reads after any token that was given out, between writes, folds, swaps and roll-backs."""
    dice = random.Random(seed)
    lab = Lab(Stores(f"sqlite:///{tmp_path_factory.mktemp('reads')}"))
    ensure_first_generation(TOY, lab.stores, lab.log, "test")
    tokens = [""]
    reads: list[Read[int]] = []

    def act(what: str) -> None:
        if what == "write":
            tokens.append(written(lab, *dice.sample(["t0", "t1", "t2", "t3"], dice.randint(1, 3))))
        elif what == "fold":
            fold(lab, dice.randrange(PARTITIONS), batch=dice.randint(1, 3))
        elif what == "rebuild":
            rebuild(TOY, lab.stores, lab.log, batch=dice.randint(1, 5))
        elif lab.log.read_now(partial(generations.previous, projection="toy")) is not None:
            rollback("toy", lab.stores, lab.log, TOY)

    async def run() -> None:
        async with models_of(lab) as models:
            for what in acts:
                await asyncio.to_thread(act, what)
                token = dice.choice(tokens)
                found = await models.read("toy", count, after=token, timeout_s=0)
                wanted = read_token(token)
                assert found.reached == all(found.positions[p] >= position for p, position in wanted.items())
                assert found.value == sum(position.n + 1 for position in found.positions.values())
                reads.append(found)

    asyncio.run(run())
    for earlier, later in pairwise(reads):
        assert all(later.positions[p] >= position for p, position in earlier.positions.items()), "a read went back"
    lab.log.close()
