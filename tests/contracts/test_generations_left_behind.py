"""Generations that are read no more: readers let go of them, and which one was read last does not hang on a clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection

from events.database import Stores
from projections import generations
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import drop_old, rebuild, rollback
from tests.contracts.engine_lab import TOY, Lab, note


@pytest.fixture
def lab(stores: Stores) -> Iterator[Lab]:
    lab = Lab(stores)
    lab.archive(note("e1", "t", "a", 1))
    rebuild(TOY, lab.stores, lab.log)
    yield lab
    lab.log.close()


def readers_of(generation: str) -> list[str]:
    """Threads that hold a connection to read a generation by."""
    return [thread.name for thread in threading.enumerate() if generation in thread.name and "read" in thread.name]


async def nobody_reads(generation: str) -> None:
    deadline = time.monotonic() + 60
    while readers_of(generation):
        assert time.monotonic() < deadline, f"{generation} is still open: {readers_of(generation)}"
        await asyncio.sleep(0.02)


def test_who_reads_on_lets_go_of_what_was_replaced(lab: Lab) -> None:
    async def scenario() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        for _ in range(3):
            former = (await models.read("toy", lambda conn: None)).generation
            assert readers_of(former)
            await asyncio.to_thread(rebuild, TOY, lab.stores, lab.log)
            assert (await models.read("toy", lambda conn: None)).generation != former
            await nobody_reads(former)
        models.close()

    asyncio.run(scenario())


def test_a_read_that_has_begun_ends_though_its_generation_is_replaced(lab: Lab) -> None:
    async def scenario() -> None:
        models, begun, go_on = ReadModels([TOY], lab.stores, lab.log), threading.Event(), threading.Event()

        def slow(conn: Connection) -> str:
            begun.set()
            assert go_on.wait(60)
            return "read"

        slowly = asyncio.create_task(models.read("toy", slow))
        assert await asyncio.to_thread(begun.wait, 60)
        await asyncio.to_thread(rebuild, TOY, lab.stores, lab.log)
        assert (await models.read("toy", lambda conn: None)).generation == "toy__g2"
        go_on.set()
        assert (await slowly).value == "read"
        await nobody_reads("toy__g1")
        models.close()

    asyncio.run(scenario())


def test_many_reads_at_once_find_the_next_generation_when_theirs_was_dropped(lab: Lab) -> None:
    """Connections open at first use: those that were not open yet find neither tables nor file."""

    async def scenario() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        await models.read("toy", lambda conn: None)
        await asyncio.to_thread(rebuild, TOY, lab.stores, lab.log)
        await asyncio.to_thread(drop_old, "toy", lab.stores, lab.log, keep=0)
        found = await asyncio.gather(*(models.read("toy", lambda conn: time.sleep(0.05)) for _ in range(6)))
        assert {each.generation for each in found} == {"toy__g2"}
        models.close()

    asyncio.run(scenario())


def test_what_was_read_last_is_gone_back_to_though_the_clock_goes_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1_000_000, 0, -1000))
    monkeypatch.setattr(generations, "now_ms", lambda: next(clock))
    rebuild(TOY, lab.stores, lab.log)
    rebuild(TOY, lab.stores, lab.log)
    back: list[Any] = [rollback("toy", lab.stores, lab.log, TOY).number for _ in range(3)]
    assert back == [2, 3, 2], "once more is forward again"
    assert [one.number for one in drop_old("toy", lab.stores, lab.log, keep=1)] == [1]
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None and active.number == 2
