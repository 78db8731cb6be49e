"""Histories are folded one at a time, and for nobody who has given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from services.api.history import Folding


def test_one_at_a_time() -> None:
    at_once, most = 0, 0

    def work(given_up: Callable[[], bool]) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(0.01)
        at_once -= 1
        return 7

    async def run() -> list[int]:
        folding = Folding()
        return await asyncio.gather(*(folding.run(work) for _ in range(4)))

    assert asyncio.run(run()) == [7] * 4
    assert most == 1


def test_whoever_is_cancelled_is_not_worked_for_any_longer() -> None:
    began, ended = threading.Event(), threading.Event()

    def endless(given_up: Callable[[], bool]) -> None:
        began.set()
        while not given_up():
            threading.Event().wait(0.005)
        ended.set()

    async def run() -> str:
        folding = Folding()
        asked = asyncio.create_task(folding.run(endless))
        await asyncio.to_thread(began.wait)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await asyncio.to_thread(ended.wait, 30)
        return await folding.run(lambda given_up: "the next one")

    assert asyncio.run(run()) == "the next one"


def test_a_failure_is_the_caller_s_and_frees_the_place() -> None:
    def failing(given_up: Callable[[], bool]) -> None:
        raise LookupError("no such thing")

    async def run() -> str:
        folding = Folding()
        with pytest.raises(LookupError):
            await folding.run(failing)
        return await folding.run(lambda given_up: "done")

    assert asyncio.run(run()) == "done"
