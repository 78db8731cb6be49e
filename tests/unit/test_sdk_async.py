"""The async client against the same small backend."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from refold import AsyncRefold, Conflict, Policy, Unavailable

from tests.sdk_backend import FakeBackend

QUICK = Policy(backoff_s=0.02, backoff_max_s=0.05)


def make(backend: FakeBackend, tmp_path: Path, **how: Any) -> AsyncRefold:
    return AsyncRefold(backend.url, spool=tmp_path / "spool", **{"policy": QUICK, "timeout_s": 5.0, **how})


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        await asyncio.wait_for(work(), 30)

    asyncio.run(within_time())


def test_a_run(backend: FakeBackend, tmp_path: Path) -> None:
    async def double(x: int) -> int:
        return 2 * x

    async def work() -> None:
        async with make(backend, tmp_path) as client, client.run("g", task="t", settles="agent") as run:
            await run.plan(["one"])
            async with run.step("one") as step:
                async with run.tool("t", {"x": 1}, side_effect=True) as call:
                    assert backend.types()[-1] == "tool.called"
                    call.result = 2
                assert await run.tool("double")(double)(4) == 8
                assert await run.call("double", double, {"x": 5}) == 10
                step.summary = "done"
            await asyncio.gather(*(run.note(f"k{n}", n) for n in range(300)))
            await run.settle({"goal": "g"})

    run(work)
    counted = [event["seq"] for event in backend.events if "seq" in event]
    assert counted == list(range(1, len(counted) + 1))
    assert backend.types()[-2:] == ["settlement.recorded", "run.terminated"]


def test_a_cancelled_task_is_an_interrupt(backend: FakeBackend, tmp_path: Path) -> None:
    async def agent(client: AsyncRefold) -> None:
        async with client.run("g") as run, run.step("s"):
            await asyncio.sleep(60)

    async def work() -> None:
        async with make(backend, tmp_path) as client:
            task = asyncio.create_task(agent(client))
            await asyncio.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(work)
    assert backend.data("run.terminated") == [{"reason": "interrupt", "detail": "CancelledError: "}]
    assert "step.failed" not in backend.types()


def test_away_and_back(backend: FakeBackend, tmp_path: Path) -> None:
    async def away() -> None:
        backend.fault = 503
        async with make(backend, tmp_path, timeout_s=0.3) as client, client.run("g", task="t") as run:
            for n in range(50):
                await run.note("k", n)
            with pytest.raises(Unavailable):
                async with run.tool("pay", side_effect=True):
                    raise AssertionError("no effect without its record")

    async def back() -> None:
        backend.fault = 0
        async with make(backend, tmp_path) as client:
            assert await client.flush()

    run(away)
    assert backend.events == []
    run(back)
    assert [event["seq"] for event in backend.events] == list(range(1, 55))


def test_resume_and_conflict(backend: FakeBackend, tmp_path: Path) -> None:
    ledger: dict[str, str] = {}

    async def crash(client: AsyncRefold) -> None:
        async with client.run("g", task="t") as run:
            async with run.step("one"):
                pass
            raise ValueError("crash")

    async def found(key: str) -> str | None:
        return ledger.get(key)

    async def work() -> None:
        async with make(backend, tmp_path) as client:
            with pytest.raises(ValueError, match="crash"):
                await crash(client)
            async with client.run(task="t", resume=True) as run:
                assert (run.attempt, run.pending(["one", "two"])) == (2, ["two"])
                async with run.tool("pay", side_effect=True, already_done=found) as call:
                    assert not call.done
                async with client.run(task="t", resume=True) as newer:
                    await run.heartbeat()
                    await client.flush()
                    with pytest.raises(Conflict, match=newer.id):
                        await run.heartbeat()
                run.core.terminated = True

    run(work)


def test_a_client_that_was_never_closed_keeps_its_events_on_disk(backend: FakeBackend, tmp_path: Path) -> None:
    program = f"""
import asyncio
from refold import AsyncRefold, Policy

client = AsyncRefold({backend.url!r}, spool={str(tmp_path / "spool")!r}, policy=Policy(flush_s=60))

async def work():
    run = await client.run("g").__aenter__()
    await run.note("k", 1)

asyncio.run(work())
"""
    subprocess.run([sys.executable, "-W", "ignore::ResourceWarning", "-c", program], check=True, timeout=60)
    assert backend.types() == ["run.started"]

    async def later() -> None:
        async with make(backend, tmp_path) as other:
            assert await other.flush()

    run(later)
    assert backend.types() == ["run.started", "note.written"]
