"""Services that end are started again, visibly; stopping is quick and cancels only what hangs."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

import pytest

from services import supervisor as module
from services.supervisor import Supervisor


def test_a_service_that_fails_or_ends_is_started_again_and_seen(caplog: pytest.LogCaptureFixture) -> None:
    lives: list[int] = []
    third = asyncio.Event()

    async def run(stopping: asyncio.Event) -> None:
        lives.append(len(lives))
        if len(lives) == 1:
            raise OSError("no such luck")
        if len(lives) == 2:
            return
        third.set()
        await stopping.wait()

    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("inbox", run)
        await asyncio.wait_for(third.wait(), 10)
        status = supervisor.status["inbox"]
        assert (status.state, status.restarts) == ("running", 2)
        assert "inbox ended by itself" in status.error
        await supervisor.stop()
        assert supervisor.status["inbox"].state == "stopped"

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "OSError: no such luck" in caplog.messages[0]
    assert len(caplog.messages) == 2


def test_stopping_waits_for_the_orderly_and_cancels_the_hanging() -> None:
    ended: list[str] = []

    async def orderly(stopping: asyncio.Event) -> None:
        await stopping.wait()
        await asyncio.sleep(0.05)
        ended.append("orderly")

    async def hanging(stopping: asyncio.Event) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def scenario() -> float:
        supervisor = Supervisor(stop_timeout_s=0.2)
        supervisor.start("a", orderly)
        supervisor.start("b", hanging)
        await asyncio.sleep(0.01)
        began = monotonic()
        await supervisor.stop()
        return monotonic() - began

    assert asyncio.run(scenario()) < 30
    assert ended == ["orderly", "cancelled"]


def test_a_pause_between_lives_does_not_delay_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 90.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 90.0)

    async def run(stopping: asyncio.Event) -> None:
        raise OSError

    async def scenario() -> float:
        supervisor = Supervisor()
        supervisor.start("a", run)
        while supervisor.status["a"].state != "waiting":  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)
        began = monotonic()
        await supervisor.stop()
        return monotonic() - began

    assert asyncio.run(scenario()) < 30
