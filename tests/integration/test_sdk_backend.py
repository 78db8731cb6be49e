"""The SDK against a real ``refold up``: block ends, the spool, resumes that race."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from refold import AsyncRefold, Conflict, Policy, Refold, Resume
from refold.address import find
from refold.core import RunCore
from refold.envelope import Draft, Scope
from refold.options import Options

from tests.instance import REFOLD, ROOT, Instance, environment, running_instance, until

QUICK = Policy(backoff_s=0.05, backoff_max_s=0.2)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running_instance(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


@pytest.fixture
def client(instance: Instance, tmp_path: Path) -> Iterator[Refold]:
    with _client(instance, tmp_path) as made:
        yield made


def _client(instance: Instance, tmp_path: Path) -> Refold:
    return Refold(instance.url, agent="a", user="u", session="s", spool=tmp_path / "spool", policy=QUICK, timeout_s=20)


def _task(client: Refold, task: str) -> Any:
    assert client.flush()
    return until(lambda: client.get(f"/v1/tasks/{task}"))


def _events(instance: Instance, run: str) -> list[dict[str, Any]]:
    answer = instance.http.get(f"/v1/runs/{run}/events", params={"limit": 500})
    return list(answer.json()["items"]) if answer.status_code == 200 else []


def test_every_word_passes_the_door(instance: Instance, client: Refold) -> None:
    task = instance.name("words")
    with client.run(
        "every word", task=task, settles="agent", settle_deadline_s=30, mode="creative", model="m",
        budget={"tokens": 5}, system_prompt="be brief", tools=[{"name": "t"}],
    ) as run:  # fmt: skip
        run.plan(["one", {"id": "two", "title": "Two"}], reason="to begin")
        with run.step("one", "One") as step:
            with run.tool("t", {"x": 1}, side_effect=True, expected_s=3) as call:
                call.result = {"y": [1, 2]}
            step.summary, step.result = "done", {"z": 1}
        with pytest.raises(OSError, match="no"), run.step("two"), run.tool("t"):
            raise OSError("no")
        run.skip("three", "not needed")
        run.decide("a", question="q", alternatives=["b"], rationale="r", based_on=[call.call_id])
        run.message("user", [{"type": "text", "text": "hi"}], name="n")
        run.note("k", {"v": 1}, category="c", ttl_s=5, expected_version=0)
        run.feedback("good", score=0.5, target_kind="call", target=call.call_id, by="u")
        run.artifact("f", uri="file:///f", kind="k", digest="d", size_bytes=1, step="one")
        run.block("b", "why")
        run.unblock("b", "gone")
        run.request_approval("ok?", action="act", arguments={"a": 1})
        run.resolve_approval("ok?", approved=True, by="u")
        run.checkpoint({"state": [1, {"deep": None}]}, data_version="3", milestone=True)
        run.responded("m", tokens_in=1, tokens_out=2, cost=0.1, latency_ms=5)
        run.remember("likes tea", kind="preference", entity="tea", attribute="taste", tags=["t"])
        run.heartbeat("still here")
        run.settle({"goal": "g"}, memories=[{"content": "m"}], reflections=["r"], learnings=["l"])
    assert client.flush()
    stored = _events(instance, run.id)
    assert "publication.refused" not in {event["type"] for event in stored}
    assert len([event for event in stored if event["source"] == "refold-sdk"]) == 26
    document = client.resume(task)
    assert document.results == {"one": {"z": 1}, "three": None}
    assert document.checkpoint == {"state": [1, {"deep": None}]}
    settlement = until(lambda: instance.http.get(f"/v1/runs/{run.id}/settlement").json())
    assert (settlement["by"], settlement["reason"], settlement["interrupted"]) == ("agent", "end_turn", False)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, "completed", "end_turn"),
        (KeyboardInterrupt(), "interrupted", "interrupt"),
        (TimeoutError(), "interrupted", "timeout"),
        (ValueError("x"), "interrupted", "panic_stop"),
    ],
)
def test_block_ends(instance: Instance, client: Refold, error: BaseException | None, status: str, reason: str) -> None:
    task = instance.name("end")

    def agent() -> None:
        with client.run("g", task=task) as run, run.step("s"):
            if error is not None:
                raise error

    if error is None:
        agent()
    else:
        with pytest.raises(type(error)):
            agent()
    found = until(lambda: (task_ := _task(client, task))["reason"] and task_)
    assert (found["status"], found["reason"]) == (status, reason)


def test_large_output_passes_the_door(instance: Instance, client: Refold) -> None:
    """C28: what the SDK makes of 20 MB is accepted."""
    with client.run("g") as run, run.tool("cat") as call:
        call.result = "\u0000\U0001f468" * 4_000_000
    assert client.flush()
    assert "tool.returned" in [event["type"] for event in _events(instance, run.id)]


@contextmanager
def _up(data: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """``refold up`` on a fixed port, since the spool of an address is for that address alone."""
    command = [*REFOLD, "up", "--data", str(data), "--http", str(port)]
    with (data.parent / "up.log").open("ab") as log, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, env=environment(), cwd=ROOT
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready "), (data.parent / "up.log").read_text()
        yield process
        process.terminate()


def test_a_backend_that_was_killed_gets_everything_later_in_order(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, spool = f"http://127.0.0.1:{port}", tmp_path / "spool"
    with _up(tmp_path / "data", port) as backend, Refold(url, spool=spool, policy=QUICK, timeout_s=2) as client:
        run = client.run("g", task="t").__enter__()
        run.note("before", 0)
        assert client.flush()
        run.note("perhaps stored, never answered", 0)
        backend.send_signal(signal.SIGKILL)
        backend.wait()
        for n in range(300):
            run.note("while away", n)
    with _up(tmp_path / "data", port), Refold(url, spool=spool, policy=QUICK) as later, httpx.Client() as http:
        assert later.flush(30)
        found = http.get(f"{url}/v1/runs/{run.id}/events", params={"limit": 500}).json()["items"]
    assert [event["data"]["content"] for event in found[1:]] == [0, 0, *range(300)]


@pytest.mark.parametrize("at", [0, 3])
def test_a_damaged_spool_is_delivered_but_for_what_is_lost(instance: Instance, tmp_path: Path, at: int) -> None:
    """The backend takes the filler of a lost number, the run's start included, and then what follows it."""
    name = f"damaged-{at}"
    folder = Options(find(instance.url), Scope(), spool=tmp_path / "spool").open_spool()
    assert folder is not None
    core = RunCore(Scope(agent="a", task=name, run=name), settles="backend", about={})
    lines: list[bytes] = []
    for draft in [core.start(None), *(Draft("note.written", {"key": f"k{n}", "content": n}) for n in range(5))]:
        core.publish(draft, lambda event: lines.append(json.dumps(event).encode()))
    lines[at] = b'{"x":1}'
    folder.append(lines)
    folder.close()
    with _client(instance, tmp_path) as client:
        assert client.flush(20)
    found = until(lambda: _events(instance, name))
    assert [event["seq"] for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event["type"] for event in found].index("publication.refused") == at


def test_of_two_resumes_that_race_one_gets_the_conflict(instance: Instance, tmp_path: Path) -> None:
    for round_ in range(5):
        task = instance.name("race")
        with _client(instance, tmp_path) as client, pytest.raises(ValueError, match="crash"), client.run(task=task):
            raise ValueError("crash")
        _race(instance, tmp_path / str(round_), task)


def _race(instance: Instance, folder: Path, task: str) -> None:
    won: list[str] = []
    lost: list[Conflict] = []
    barrier = threading.Barrier(2)

    class Together(Refold):
        def resume(self, task: str, *, after: str = "", **more: Any) -> Resume:
            found = super().resume(task, after=after, **more)
            if not after:
                barrier.wait(20)
            return found

    def worker(number: int) -> None:
        with Together(instance.url, spool=folder / str(number), policy=QUICK) as client:
            try:
                with client.run(task=task, resume=True) as run:
                    won.append(run.id)
            except Conflict as conflict:
                lost.append(conflict)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(won), len(lost)) == (1, 1)
    assert won[0] in str(lost[0]), "the conflict names the winner"


def test_a_paused_worker_that_wakes_can_add_only_late_results(instance: Instance, client: Refold) -> None:
    """C20: the late result of an older attempt is taken, once, and nothing else of it."""
    task = instance.name("zombie")
    old = client.run("g", task=task).__enter__()
    block = old.tool("slow", {"x": 1}, side_effect=True)
    call = block.__enter__()
    with client.run(task=task, resume=True) as new:
        assert new.resumed is not None
        assert [earlier.call_id for earlier in new.resumed.in_flight] == [call.call_id]
        call.result = "late, but here"
        with pytest.raises(Conflict, match=new.id):
            block.__exit__(None, None, None)
        assert client.flush()
        with pytest.raises(Conflict, match=new.id):
            old.note("zombie", 1)
    assert client.flush()
    stored = [(event["type"], event["data"].get("late")) for event in _events(instance, old.id)]
    assert stored == [("run.started", None), ("tool.called", None), ("tool.returned", True)]
    assert client.resume(task).in_flight == ()


def test_async(instance: Instance, tmp_path: Path) -> None:
    task = instance.name("async")

    async def work() -> None:
        async with AsyncRefold(instance.url, spool=tmp_path / "spool", policy=QUICK) as client:
            with pytest.raises(ValueError, match="crash"):
                await crash(client)
            async with client.run(task=task, resume=True) as run:
                assert (run.attempt, run.pending(["one", "two"]), run.result("one")) == (2, ["two"], 1)

    async def crash(client: AsyncRefold) -> None:
        async with client.run("g", task=task) as run:
            async with run.step("one") as step:
                step.result = 1
            raise ValueError("crash")

    asyncio.run(work())
