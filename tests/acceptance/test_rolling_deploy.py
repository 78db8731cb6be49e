"""A rolling deploy: processes of two versions of the code on one store, forward and back, while events flow.

The store was written by a former version (``tests/golden``). One side runs the read model ``goals`` as it was; the
other one renamed a column of it, requires a new one, and knows a newer version of its event type.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from events.database import Stores
from tests.golden_store import STORES, load
from tests.instance import ROOT, environment, running_instance, until
from tests.servers import RedisServer, redis_server
from tests.warm import WarmProcess

PATIENCE_S = 90.0
PARKED = "task/owned"
"""A key with an event that is newer than the old code: to that it is incomplete."""

SERVED = ("live", "behind")
OLD, NEW = "tests.upgrades.run_v1:PROJECTIONS", "tests.upgrades.run_v2:PROJECTIONS"


@dataclass
class Process:
    """One process of the backend; its log is kept."""

    name: str
    log: Path
    process: WarmProcess

    @property
    def url(self) -> str:
        """Where it serves HTTP, once it does."""
        found = until(lambda: re.search(r"serving (http://\S+)", self.log.read_text()), PATIENCE_S)
        return str(found.group(1))

    def said(self, what: str) -> int:
        """How many lines of its log hold this."""
        return sum(what in line for line in self.log.read_text().splitlines())

    def stop(self) -> None:
        """SIGTERM; it must end cleanly."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-3000:]


@dataclass
class Deploy:
    """The store, and the processes that run on it."""

    folder: Path
    redis: RedisServer
    stack: ExitStack
    processes: list[Process] = field(default_factory=list)

    def start(self, name: str, registry: str, *roles: str, **settings: str) -> Process:
        """One process of a version."""
        log = self.folder / f"{name}.log"
        environ = environment(
            REDIS_URL=self.redis.url, REFOLD_DATA=str(self.folder), REFOLD_PROJECTIONS=registry, REFOLD_LEASE_S="2",
            REFOLD_HTTP_PORT="0", PYTHONPATH=str(ROOT), REFOLD_LOG_LEVEL="info", **settings,
        )  # fmt: skip
        with log.open("wb") as output:
            process = WarmProcess(
                "services.worker", "--roles", ",".join(roles), environ=environ, stdout=output, stderr=output
            )
        started = Process(name, log, process)
        self.stack.callback(_end, process)
        self.processes.append(started)
        return started

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something holds; no process may end meanwhile."""

        def holds() -> Any:
            for one in self.processes:
                assert one.process.poll() is None, f"{one.name} ended by itself\n{one.log.read_text()[-3000:]}"
            return condition()

        until(holds, PATIENCE_S)

    def job(self, registry: str, code: str) -> None:
        """Run a program of a version to its end, as an operator would."""
        environ = environment(REFOLD_PROJECTIONS=registry, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", code, f"sqlite:///{self.folder / 'db'}", registry]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr.decode()


def _end(process: WarmProcess) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


@contextmanager
def deploying(folder: Path, golden: str) -> Iterator[Deploy]:
    load(golden, Stores(f"sqlite:///{folder / 'db'}"))
    redis = redis_server(folder / "redis")
    with ExitStack() as stack:
        stack.callback(redis.stop)
        yield Deploy(folder, redis, stack)


class Side:
    """What a client of one version's HTTP API sees. Every answer must be good, and never behind an earlier one."""

    def __init__(self, deploy: Deploy, api: Process) -> None:
        self.http = deploy.stack.enter_context(httpx.Client(base_url=api.url, timeout=30, trust_env=False))
        self.done: dict[str, int] = {}
        self.reads = 0

    def rows(self, **params: str) -> dict[str, dict[str, Any]]:
        """Its rows of ``goals``, by key."""
        answer = self.http.get("/v1/projections/goals/tables/goals", params={"limit": "500", **params})
        assert answer.status_code == 200, answer.text
        self.reads += 1
        rows = {row["key"]: row for row in answer.json()["items"]}
        for key, row in rows.items():
            assert row["done"] >= self.done.get(key, 0), f"a read went back: {row}"
            self.done[key] = row["done"]
        assert params or set(self.done) - {PARKED} <= set(rows), "a row is gone"
        return rows

    def state(self) -> str:
        """Of ``goals``, as this side sees it."""
        items = self.http.get("/v1/projections").json()["items"]
        return str(next(one["state"] for one in items if one["name"] == "goals"))

    def generation(self) -> int:
        """Of ``goals``."""
        items = self.http.get("/v1/projections").json()["items"]
        return int(next(one["generation"] for one in items if one["name"] == "goals"))

    def parked(self) -> list[str]:
        """Causes of the dead letters of the key that the old code cannot take."""
        answer = self.http.get("/v1/deadletters", params={"projection": "goals", "key": PARKED})
        assert answer.status_code == 200, answer.text
        return [one["cause"] for one in answer.json()["items"]]

    def publish(self, *events: dict[str, Any]) -> str:
        """Store events; the token of the last."""
        answer = self.http.post("/v1/events", json=list(events))
        assert answer.status_code == 200, answer.text
        outcomes = answer.json()["outcomes"]
        assert {one["status"] for one in outcomes} == {"stored"}, outcomes
        return str(outcomes[-1]["token"])


def step(task: str, number: int) -> dict[str, Any]:
    data = {"step": f"s{number}"}
    return {"id": f"{task}-{number}", "type": "step.completed", "task": task, "run": task, "data": data}


class Flow:
    """Steps published through both sides in turn, and read through both, until it is stopped."""

    def __init__(self, *sides: Side) -> None:
        self.sides = sides
        self.published = 0
        self.token = ""
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for side in self.sides:
                    side.rows()
                    self.token = side.publish(step("flow", self.published))
                    self.published += 1
                time.sleep(0.02)
        except (AssertionError, httpx.HTTPError, KeyError, ValueError) as error:
            self.failure = error

    def stop(self) -> None:
        """Stop; raises what went wrong."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


REBUILD = """
import sys
from events.database import Stores
from projections.rebuilding.rebuild import {what}
from projections.registry import load_projections

stores = Stores(sys.argv[1])
log = stores.log()
{call}
log.close()
"""
FORWARD = REBUILD.format(
    what="rebuild", call="rebuild(load_projections(sys.argv[2])['goals'], stores, log, verify=True)"
)
BACK = REBUILD.format(what="rollback", call="rollback('goals', stores, log, load_projections(sys.argv[2])['goals'])")


def caught_up(side: Side, flow: Flow) -> None:
    """Everything that was published is in what this side reads."""
    until(lambda: side.rows(after=flow.token).get("task/flow", {"done": -1})["done"] == flow.published, PATIENCE_S)


def more(deploy: Deploy, flow: Flow) -> None:
    """Wait until publishing and reading have gone on for a while."""
    before = flow.published
    deploy.until(lambda: flow.published > before + 20 or flow.failure)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("golden", STORES)
def test_old_and_new_code_side_by_side_forward_and_back(tmp_path: Path, golden: str) -> None:
    """C12 on the way: what is newer than the old code is parked by it, and picked up by the new code's rebuild."""
    with deploying(tmp_path, golden) as deploy:
        old_worker = deploy.start("old-worker", OLD, "archiver", "projector")
        old = Side(deploy, deploy.start("old-api", OLD, "api"))
        deploy.until(lambda: old.state() in SERVED and old.generation() == 1)

        new_worker = deploy.start("new-worker", NEW, "projector")
        new = Side(deploy, deploy.start("new-api", NEW, "api"))
        deploy.until(lambda: new.state() == "stale" and new_worker.said("goals is stale: other code made goals__g1"))
        flow = Flow(old, new)
        owned = {"objective": "side by side", "owner": "ada"}
        goal = {"id": "g-1", "type": "goal.set", "task": "owned", "run": "owned", "schemaversion": 3, "data": owned}
        new.publish(goal, step("owned", 1))
        more(deploy, flow)
        deploy.until(lambda: new.rows().get("task/flow", {"done": 0})["done"] > 10)
        assert new.rows()["task/flow"]["objective"] is None, "served from the old generation"
        deploy.until(lambda: old.parked() == ["newer_version", "waiting"])

        # the first worker that may rebuild moves it on by itself
        deploy.start("newer-worker", NEW, "projector", REFOLD_WORKER_REBUILDS="1")
        deploy.until(lambda: new.state() in SERVED and new.generation() == 2)
        whole = {"key": PARKED, "objective": "side by side", "owner": "ada", "done": 1}
        assert (new.rows()[PARKED], new.parked()) == (whole, [])
        deploy.until(lambda: old_worker.said("goals is stale: other code made goals__g2") and old.state() == "stale")
        more(deploy, flow)

        # back: the old code goes on where it was, and the new one does not fight it
        deploy.job(OLD, BACK)
        deploy.until(lambda: old.state() in SERVED and old.generation() == 1)
        more(deploy, flow)
        deploy.until(lambda: old.parked() == ["newer_version", "waiting"])

        # and forward again
        deploy.job(NEW, FORWARD)
        deploy.until(lambda: new.state() in SERVED and new.generation() == 3)
        assert (new.rows()[PARKED], new.parked()) == (whole, [])
        more(deploy, flow)
        flow.stop()
        caught_up(old, flow)
        caught_up(new, flow)
        assert min(old.reads, new.reads) > 20
        for process in deploy.processes:
            quiet(process)
        for process in reversed(deploy.processes):
            process.stop()


def quiet(process: Process) -> None:
    """What it has to say of a generation of other code it says once, each time that it becomes the one that is read."""
    text = process.log.read_text()
    assert "Traceback" not in text, text[-3000:]
    stale = [line for line in text.splitlines() if "is stale" in line]
    said = [sum(f"other code made goals__g{number};" in line for line in stale) for number in (1, 2, 3)]
    assert said[0] <= 2 and max(said[1:]) <= 1, text
    assert len(text.splitlines()) < 200, text[-3000:]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("golden", STORES)
def test_refold_up_on_the_store_of_a_former_version(tmp_path: Path, golden: str) -> None:
    """C11: it serves what there is at once, moves renamed and split read models on by itself, and drops the former."""
    load(golden, Stores(f"sqlite:///{tmp_path / 'data' / 'db'}"))
    with running_instance(tmp_path / "data", REFOLD_PROJECTIONS="tests.upgrades.run_renamed:PROJECTIONS") as up:
        acme = {"x-refold-org": "acme"}

        def row(table: str) -> dict[str, Any]:
            path, params = f"/v1/projections/{table}/tables/{table}", {"key": "task/plain"}
            answer = up.http.get(path, params=params, headers=acme)
            assert answer.status_code == 200, answer.text
            (found,) = answer.json()["items"]
            return dict(found)

        def generations() -> dict[str, str]:
            return {one["name"]: one["state"] for one in up.http.get("/v1/generations").json()["items"]}

        names = ("objectives", "titles", "progress")
        assert [row(name).get("objective", "ship it") for name in names] == ["ship it"] * 3
        assert row("progress")["done"] == 2
        until(lambda: all(generations().get(f"{name}__g1") == "active" for name in names), PATIENCE_S)
        assert row("objectives") == {"key": "task/plain", "objective": "ship it", "owner": "nobody", "done": 2}
        assert up.refold("verify", *names).returncode == 0
        dropped = up.refold("rebuild", "objectives", "--drop-old", "--keep", "0", "--json")
        assert dropped.returncode == 0 and b"goals__g1" in dropped.stdout, dropped.stdout + dropped.stderr
        assert generations()["goals__g1"] == "dropped"
        assert row("titles") == {"key": "task/plain", "objective": "ship it"}
