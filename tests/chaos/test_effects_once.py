"""An agent dies, or freezes, between any two of its lines, again and again: each effect lands exactly once.

Whoever goes on with its task is a new process. The bank outside pays a key once; the printer prints as often as it is
told, so it must be asked first. A frozen agent that wakes after its task was taken over may be about to act: nobody but
the ledger itself can hold it back then, which is why it has to do with the bank alone.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest
from refold import Refold

from tests.chaos.bank import BankServer
from tests.chaos.nursery import FAILED, LOST, Nursery
from tests.chaos.paying_agent import QUICK, chosen, pages
from tests.instance import PROGRAM, Instance, environment, running_instance
from tests.soak import ALL
from tests.warm import WarmProcess

STEPS = {"sync": ("order", "pay", "print", "tell"), "async": ("pay", "print")}
EFFECTS = {"sync": (2, 2), "async": (1, 1)}
"""Payments and pages that a task comes to."""


SDK = "refold-sdk"
RESULTS = {"tool.returned", "tool.failed"}


@dataclass
class World:
    """A backend, a ledger of either kind, and agents."""

    instance: Instance
    bank: BankServer
    nursery: Nursery
    folder: Path

    def job(self, task: str, agent: str = "sync", **more: Any) -> dict[str, Any]:
        """What a life of an agent with this task is told."""
        place = {"tray": str(self.folder / f"{task}.tray"), "spool": str(self.folder / task)}
        return {"url": self.instance.url, "bank": self.bank.url, "task": task, "agent": agent, **place, **more}

    def life(self, task: str, agent: str = "sync", **more: Any) -> int | str:
        """A whole life; how it ended."""
        return self.nursery.end_of(self.nursery.live(**self.job(task, agent, **more)))

    def lines(self, agent: str, **more: Any) -> int:
        """How many lines an agent goes through that nobody disturbs."""
        count = self.folder / f"lines-{agent}"
        assert self.life(self.instance.name(), agent, count=str(count), **more) == 0
        return int(count.read_text())

    def check(self, task: str, agent: str = "sync", printer: bool = True) -> None:
        """Each effect once, each step once, and the task is completed with nothing left open."""
        payments, printed = EFFECTS[agent]
        keys = [page["key"] for page in pages(self.folder / f"{task}.tray")]
        assert len(set(keys)) == printed, keys
        assert len(keys) == printed or not printer, keys
        document = self.instance.http.get(f"/v1/tasks/{task}/resume").json()
        assert (document["status"], document["in_flight"]) == ("completed", [])
        assert tuple(step["step"] for step in document["finished_steps"]) == STEPS[agent]
        events = [event for event in self.events(task) if event["verdict"] == "effective"]
        calls = {e["data"]["idempotency_key"] for e in events if e["type"] == "tool.called"}
        assert len(calls & self.bank.payments.keys()) == payments
        done = Counter(event["data"]["step"] for event in events if event["type"] == "step.completed")
        assert done == dict.fromkeys(STEPS[agent], 1)

    def events(self, task: str) -> list[dict[str, Any]]:
        """Everything in the archive of a task's runs."""
        runs = self.instance.http.get("/v1/runs", params={"task": task, "limit": 100}).json()["items"]
        pages = [self.instance.http.get(f"/v1/runs/{run['run']}/events", params={"limit": 500}).json() for run in runs]
        return [event for page in pages for event in page["items"]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("effects")
    with running_instance(folder / "data") as instance, BankServer() as bank, Nursery() as nursery:
        yield World(instance, bank, nursery, folder)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("agent", "stride", "deep"), [("sync", 20, False), ("async", 24, False), ("sync", 4000, True)])
def test_killed_between_any_two_lines(world: World, agent: str, stride: int, deep: bool) -> None:
    """C20: killed there, then killed as far on again, then left alone; ``deep``, inside the SDK as well."""
    lines = world.lines(agent, deep=deep)
    for at in chosen(lines, (67 if deep else 1) if ALL else stride):
        task = world.instance.name(f"killed-{at}")
        for later in (at, at):
            end = world.life(task, agent, at=later, deep=deep)
            assert end in (0, -signal.SIGKILL), f"killed at line {at}: {end}"
        assert world.life(task, agent) == 0, f"killed at line {at}"
        world.check(task, agent)
    print(f"{agent}: {lines} lines")


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_killed_and_moved_to_another_machine(world: World) -> None:
    """What the first machine had not sent is there no more; when it comes back, its spool changes nothing."""
    for at in chosen(world.lines("sync"), 1 if ALL else 54):
        task = world.instance.name(f"moved-{at}")
        for number in (1, 2):
            assert world.life(task, at=at, spool=str(world.folder / f"{task}-{number}")) in (0, -signal.SIGKILL)
        assert world.life(task, spool=str(world.folder / f"{task}-3")) == 0
        world.check(task)
        for number in (1, 2):
            with Refold(world.instance.url, spool=world.folder / f"{task}-{number}", policy=QUICK) as back:
                assert back.flush(60)
        world.check(task)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("agent", "stride"), [("sync", 40), ("async", 36)])
def test_frozen_between_any_two_lines_while_another_process_finishes_the_task(
    world: World, agent: str, stride: int
) -> None:
    """SIGSTOP there; a new process resumes and completes; then SIGCONT: what wakes adds nothing but late results."""
    lines = world.lines(agent)
    for at in chosen(lines, 1 if ALL else stride):
        task = world.instance.name(f"frozen-{at}")
        frozen = world.nursery.live(**world.job(task, agent, at=at, signum=signal.SIGSTOP))
        assert world.nursery.end_of(frozen, stopped=True) == "stopped", f"frozen at line {at}"
        other = {"spool": str(world.folder / f"{task}-other")}
        assert world.life(task, agent, **other) == 0, f"frozen at line {at}"
        before = world.events(task)
        os.kill(frozen, signal.SIGCONT)
        end = world.nursery.end_of(frozen)
        assert end in (0, LOST), f"frozen at line {at}: {end}"
        world.check(task, agent, printer=False)
        if end == LOST:
            known = {event["id"] for event in before}
            added = [event for event in world.events(task) if event["id"] not in known and event["source"] == SDK]
            assert all(event["type"] in RESULTS and event["data"]["late"] for event in added), f"frozen at line {at}"


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_what_cannot_be_asked_for_is_done_at_most_once(world: World) -> None:
    """Where the log tells how a call ended, it is not repeated; where nobody can tell, the agent is told that."""
    agent = "without asking"
    ends = []
    for at in chosen(world.lines(agent), 1 if ALL else 5):
        task = world.instance.name(f"unasked-{at}")
        assert world.life(task, agent, at=at) == -signal.SIGKILL
        ends.append(world.life(task, agent))
        keys = [page["key"] for page in pages(world.folder / f"{task}.tray")]
        assert len(keys) == len(set(keys)), f"killed at line {at}: {keys}"
        calls = [e["data"] for e in world.events(task) if e["type"] in ("tool.called", "tool.returned")]
        in_doubt = world.instance.http.get(f"/v1/tasks/{task}/resume").json()["in_flight"]
        assert (ends[-1], len(in_doubt)) in ((0, 0), (FAILED, 1)), calls
        assert ends[-1] == FAILED or len(keys) == 2
    assert {0, FAILED} == set(ends), "both happen"


class Backend:
    """``refold up`` at a fixed port: agents that live find it there again after it was killed. A ``with`` block."""

    def __init__(self, data: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = data

    def __enter__(self) -> Backend:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end(signal.SIGTERM)

    def start(self) -> None:
        """And wait until it is ready."""
        arguments = ("up", "--data", str(self.data), "--http", str(self.port))
        with self.data.with_suffix(".log").open("ab") as log:
            self.process = WarmProcess(PROGRAM, *arguments, environ=environment(), stderr=log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"ready "), self.data.with_suffix(".log").read_text()

    def end(self, signum: signal.Signals) -> None:
        """End it by a signal."""
        self.process.send_signal(signum)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_killed_together_with_the_backend(tmp_path: Path) -> None:
    """Invariant 1: an agent that finds no backend does no effect; whoever is killed first, each effect lands once."""
    dice = random.Random(7)
    with (
        Backend(tmp_path / "data") as backend,
        BankServer() as bank,
        Nursery() as nursery,
        httpx.Client(base_url=backend.url, timeout=60, trust_env=False) as http,
    ):
        world = World(Instance(backend.data, backend.url, backend.process, http), bank, nursery, tmp_path)
        for number in range(12 if ALL else 1):
            task = f"both-{number}"
            for _ in range(2 if ALL else 1):
                life = nursery.live(**world.job(task, at=dice.randrange(20, 80)))
                time.sleep(dice.uniform(0, 1))
                backend.end(signal.SIGKILL)
                backend.start()
                assert nursery.end_of(life) in (0, FAILED, -signal.SIGKILL)
            ends = [world.life(task)]
            while ends[-1] == FAILED and len(ends) < 20:  # what is known of the task is still being read from the log
                ends.append(world.life(task))
            assert ends[-1] == 0, ends
            world.check(task)
        if ALL:
            verified = world.instance.refold("verify")
            assert verified.returncode == 0, verified.stdout.decode()
