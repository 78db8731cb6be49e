"""``refold up`` as a user meets it: real processes, signals, kills, and what a newcomer gets wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
import redis

from services.embedded.redis_server import start_redis
from tests.instance import NO_MODEL, PROGRAM
from tests.servers import PostgresServer, free_port
from tests.warm import WarmProcess

REFOLD = (sys.executable, "-m", "services.cli.main")
ROOT = Path(__file__).parents[2]
READY_S = 90.0


@dataclass
class Up:
    """One ``refold up``: its process, its URL, what it says on stderr."""

    process: WarmProcess
    url: str = ""
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    def publish(self, *events: dict[str, Any], ack: str = "durable") -> list[dict[str, Any]]:
        url, body = f"{self.url}/v1/events", list(events)
        answer = httpx.post(url, params={"ack": ack}, json=body, timeout=60, trust_env=False)
        assert answer.status_code in (200, 202, 207), answer.text
        outcomes: list[dict[str, Any]] = answer.json()["outcomes"]
        return outcomes

    def get(self, path: str) -> Any:
        answer = httpx.get(self.url + path, timeout=60, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def events(self, run: str) -> list[str]:
        """Ids of a run's events that count, in order."""
        answer = httpx.get(f"{self.url}/v1/runs/{run}/events?limit=500", timeout=60, trust_env=False)
        items = answer.json()["items"] if answer.status_code == 200 else []
        return [event["id"] for event in items if event["verdict"] == "effective"]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)


class Machine:
    """A data folder on which instances are started and killed, one after another."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.instances: list[Up] = []

    def environment(self, **environ: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("REFOLD_") and k != "REDIS_URL"}
        return {**inherited, **NO_MODEL, "REFOLD_DATA": str(self.data), "REFOLD_HTTP_PORT": "0", **environ}

    def command(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*REFOLD, *arguments],
            env=self.environment(**environ), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def up(self, *arguments: str, **environ: str) -> Up:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as stderr:
            process = WarmProcess(PROGRAM, "up", *arguments, environ=self.environment(**environ), stderr=stderr)
        instance = Up(process)
        self.instances.append(instance)
        assert process.stdout is not None
        for stream, kept in ((process.stdout, instance.out), (os.fdopen(reading, "rb"), instance.err)):
            threading.Thread(target=keep, args=(TextIOWrapper(stream), kept), daemon=True).start()
        until(lambda: bool(instance.out) or instance.process.poll() is not None, READY_S)
        assert instance.out, "".join(instance.err)
        assert instance.out[0].startswith("ready http://")
        instance.url = instance.out[0].split()[1]
        return instance

    def fails(self, *arguments: str, **environ: str) -> str:
        """What a start that cannot work says; it says one line, and no more."""
        with self.command("up", *arguments, **environ) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        assert out == ""
        said = [line for line in err.splitlines() if line.startswith("refold: ")]
        assert len(said) == 1, err
        assert "Traceback" not in err
        return said[0]

    def instance(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "instance.json").read_text())
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "data")
    yield made
    for instance in made.instances:
        if instance.process.poll() is None:
            instance.stop(signal.SIGTERM)
    port = made.data / "redis" / "redis.port"
    if port.exists():
        with redis.Redis(port=int(port.read_text())) as orphan, suppress(redis.RedisError):
            orphan.shutdown(nosave=True)


def keep(stream: IO[str], kept: list[str]) -> None:
    with stream:
        kept.extend(stream)


def until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.05)


def step(n: int, run: str = "r1") -> dict[str, Any]:
    return {"id": f"{run}-e{n:04}", "type": "step.started", "run": run, "data": {"step": f"s{n}"}}


def ended(run: str) -> dict[str, Any]:
    return {"id": f"{run}-end", "type": "run.terminated", "run": run, "data": {"reason": "timeout"}}


def test_it_serves_says_so_in_one_line_and_stops_on_sigterm(machine: Machine) -> None:
    up = machine.up()
    assert up.publish(step(1))[0]["status"] == "stored"
    assert machine.instance()["url"] == up.url
    assert machine.instance()["pid"] == up.process.pid
    assert up.get("/readyz")["ready"] is True
    began = time.monotonic()
    assert up.stop(signal.SIGTERM) == 0
    assert time.monotonic() - began < 40
    assert up.out == [f"ready {up.url}\n"]
    assert not (machine.data / "instance.json").exists()
    assert not [line for line in up.err if " WARNING " in line or " ERROR " in line], "".join(up.err)
    # archiver and door may share the work
    assert sum(int(count) for count in re.findall(r"log opened: (\d+) partition", "".join(up.err))) == 8


def test_a_clean_restart_is_quiet(machine: Machine) -> None:
    """The embedded Redis is a new process each time; that the log is opened again is no news."""
    first = machine.up()
    first.publish(*(step(n, f"run{n}") for n in range(10)))
    first.stop()
    again = machine.up()
    assert [o["status"] for o in again.publish(step(1, "run1"), step(2, "run2"))] == ["duplicate"] * 2
    again.stop()
    assert not [line for line in again.err if " WARNING " in line or " ERROR " in line], "".join(again.err)
    assert sum("re-opened after a restart of Redis, nothing lost: 8 partitions" in line for line in again.err) == 1


def test_ctrl_c_is_clean_too(machine: Machine) -> None:
    up = machine.up()
    assert up.stop(signal.SIGINT) == 0


def test_a_second_up_on_the_same_data_refuses_and_names_the_first(machine: Machine) -> None:
    up = machine.up()
    said = machine.fails()
    assert f"pid {up.process.pid}" in said
    assert up.url in said


def test_kill_9_loses_nothing_and_the_next_up_goes_on(machine: Machine) -> None:
    """C3 of the embedded default: the orphaned Redis is found, the log re-opened, nothing lost or doubled."""
    up = machine.up()
    up.publish(*(step(n) for n in range(50)))
    up.process.kill()
    up.process.wait()
    again = machine.up()
    assert [o["status"] for o in again.publish(*(step(n) for n in range(60)))] == ["duplicate"] * 50 + ["stored"] * 10
    assert again.events("r1") == [f"r1-e{n:04}" for n in range(60)]
    until(lambda: all(p["lag_events"] == 0 for p in again.get("/v1/projections")["items"]))
    assert again.stop() == 0


def test_what_the_log_holds_is_waited_for_after_a_restart_too(machine: Machine) -> None:
    """A restart of Redis opens an empty epoch; who waits for "all there is" still waits for what came before it."""
    up = machine.up()
    up.publish(*(step(n) for n in range(5)))
    token = up.get("/v1/log")["token"]
    assert token
    assert up.stop() == 0
    assert machine.up().get("/v1/log")["token"] == token


def test_a_run_that_ended_is_settled_once_though_everything_is_killed(machine: Machine) -> None:
    up = machine.up()
    up.publish(step(1), ended("r1"))
    up.process.kill()
    up.process.wait()
    again = machine.up()
    until(lambda: len(again.events("r1")) == 3)
    again.process.kill()
    again.process.wait()
    last = machine.up()
    time.sleep(1)
    events = last.get("/v1/runs/r1/events")["items"]
    types = [event["type"] for event in events if event["verdict"] == "effective"]
    assert sorted(types) == ["run.terminated", "settlement.degraded", "step.started"]


def test_a_plain_redis_client_publishes_through_the_inbox(machine: Machine) -> None:
    up = machine.up()
    with redis.Redis.from_url(machine.instance()["redis_url"]) as client:
        for n in range(20):
            client.xadd("refold:inbox", {**step(n), "data": json.dumps(step(n)["data"])})
    until(lambda: len(up.events("r1")) == 20)


def test_redis_killed_under_load_comes_back_and_nothing_is_lost(machine: Machine) -> None:
    up = machine.up(REFOLD_PUBLISH_TIMEOUT_S="30")
    done: list[int] = []
    enough = threading.Event()

    def load() -> None:
        n = 0
        while not enough.is_set():
            batch = [step(k) for k in range(n, n + 20)]
            try:
                answer = httpx.post(f"{up.url}/v1/events", json=batch, timeout=60, trust_env=False)
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                n += 20
                done.append(n)

    publisher = threading.Thread(target=load)
    publisher.start()
    try:
        for _ in range(3):
            before = len(done)
            until(lambda before=before: len(done) > before + 3)
            os.kill(int((machine.data / "redis" / "redis.pid").read_text()), signal.SIGKILL)
        before = len(done)
        until(lambda: len(done) > before + 3)
    finally:
        enough.set()
        publisher.join()
    assert up.get("/v1/log")["events"] >= done[-1]
    outcomes = up.publish(*(step(k) for k in range(done[-1])))
    assert {outcome["status"] for outcome in outcomes} == {"duplicate"}
    status = up.get("/readyz")["services"]
    assert status["archiver"]["state"] == "running"


def test_worker_processes_fold_are_replaced_and_go_with_their_parent(machine: Machine) -> None:
    up = machine.up("--workers", "2", REFOLD_LEASE_S="1")
    until(lambda: len(children(up)) == 2)
    for run in range(16):
        up.publish(*(step(n, f"run{run}") for n in range(10)))
    os.kill(children(up)[0], signal.SIGKILL)
    until(lambda: sum(up.get("/readyz")["services"][f"worker {n}"]["restarts"] for n in (1, 2)) == 1)
    until(lambda: len(children(up)) == 2)
    for run in range(16):
        up.publish(*(step(n, f"run{run}") for n in range(10, 20)))
    until(lambda: all(p["lag_events"] == 0 for p in up.get("/v1/projections")["items"]))
    orphans = children(up)
    up.process.kill()
    up.process.wait()
    until(lambda: not any(alive(pid) for pid in orphans))


def children(up: Up) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == up.process.pid and "services.worker" in (process / "cmdline").read_text():
                found.append(int(process.name))
        except (OSError, ValueError):
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_taken_port_is_one_clear_line(machine: Machine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = machine.fails(REFOLD_HTTP_PORT=str(port))
    assert f"port {port} of 127.0.0.1 is taken" in said
    assert "REFOLD_HTTP_PORT" in said


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "no Redis answers at redis://127.0.0.1:1/0"),
        ({"REDIS_URL": "127.0.0.1:6379"}, "REDIS_URL is '127.0.0.1:6379'"),
        ({"REFOLD_DATABASE_URL": "mysql://x/y"}, "REFOLD_DATABASE_URL is 'mysql://x/y'"),
        ({"REFOLD_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/refold"}, "set REFOLD_DATABASE_URL"),
        ({"REFOLD_DATA": "/proc/refold"}, "cannot write the data folder /proc/refold"),
        ({"REFOLD_PROJECTIONS": "no.such:THING"}, "no.such:THING"),
        ({"REFOLD_HTTP_HOST": "203.0.113.7"}, "cannot listen on 203.0.113.7"),
        ({"REFOLD_HTTP_HOST": "no host"}, "REFOLD_HTTP_HOST"),
    ],
)
def test_what_a_newcomer_gets_wrong_is_one_clear_line(machine: Machine, environ: dict[str, str], said: str) -> None:
    assert said in machine.fails(**environ)


def test_another_number_of_partitions_is_refused(machine: Machine) -> None:
    machine.up(REFOLD_PARTITIONS="4").stop()
    assert "created with 4 partitions" in machine.fails(REFOLD_PARTITIONS="8")
    # without the variable it is as it was
    assert machine.up().stop() == 0


def test_a_worker_alone_says_what_it_needs(machine: Machine) -> None:
    with machine.command("worker") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "set REDIS_URL, or start `refold up`" in err


def test_a_worker_waits_for_a_redis_that_starts_after_it(machine: Machine, tmp_path: Path) -> None:
    port = free_port()
    worker = machine.command("worker", "--role", "archiver", REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert worker.stderr is not None
    assert any("no Redis answers" in line and "tried again" in line for line in worker.stderr)
    server = start_redis(tmp_path / "late", port=port)
    try:
        assert any("at work: archiver" in line for line in worker.stderr)
        worker.terminate()
        _, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0
    finally:
        server.stop()


def test_a_worker_joins_the_instance_on_its_data_folder(machine: Machine) -> None:
    up = machine.up(REFOLD_LEASE_S="1")
    worker = machine.command("worker", "--role", "projector", REFOLD_LEASE_S="1")
    try:
        assert worker.stderr is not None
        assert any("at work: projector" in line for line in worker.stderr)
        up.publish(*(step(n) for n in range(5)))
        until(lambda: all(p["lag_events"] == 0 for p in up.get("/v1/projections")["items"]))
    finally:
        worker.terminate()
        _, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0


def test_each_role_in_a_process_of_its_own_on_postgresql(machine: Machine, postgres: PostgresServer) -> None:
    redis_server = start_redis(machine.data / "elsewhere")
    environ = {
        "REDIS_URL": redis_server.url,
        "REFOLD_DATABASE_URL": postgres.new_database(),
        "REFOLD_LEASE_S": "1",
        "REFOLD_HTTP_PORT": str(free_port()),
    }
    roles = ("archiver", "inbox", "projector", "projector", "reactors", "api")
    processes = [machine.command("worker", "--role", role, **environ) for role in roles]
    try:
        api = Up(processes[-1], f"http://127.0.0.1:{environ['REFOLD_HTTP_PORT']}")
        until(lambda: ready(api))
        api.publish(*(step(n) for n in range(20)), ended("r1"))
        with redis.Redis.from_url(redis_server.url) as client:
            client.xadd("refold:inbox", {"__data__": json.dumps(step(99, "r2"))})
        until(lambda: len(api.events("r1")) == 22)
        until(lambda: api.events("r2") == ["r2-e0099"])
        until(lambda: all(p["lag_events"] == 0 for p in api.get("/v1/projections")["items"]))
    finally:
        for process in processes:
            process.terminate()
        said = [process.communicate(timeout=60)[1] for process in processes]
        print("".join(said))
        redis_server.stop()
    assert [process.returncode for process in processes] == [0] * len(roles), "".join(said)


def ready(up: Up) -> bool:
    try:
        return bool(up.get("/readyz")["ready"])
    except httpx.HTTPError:
        return False


def test_a_second_data_folder_on_one_redis_is_refused(machine: Machine, tmp_path: Path) -> None:
    """Tenants are walls, logs too: two stores would end each other's epochs for ever."""
    redis_server = start_redis(tmp_path / "shared")
    try:
        up = machine.up(REDIS_URL=redis_server.url)
        up.publish(step(1))
        for command in ("up", "worker"):
            with machine.command(command, REDIS_URL=redis_server.url, REFOLD_DATA=str(tmp_path / "second")) as process:
                _, err = process.communicate(timeout=60)
            assert process.returncode == 2
            assert "this Redis holds the log of another store" in err
            assert "Traceback" not in err
        up.publish(step(2))
        assert up.events("r1") == ["r1-e0001", "r1-e0002"]
        assert up.stop() == 0
        with redis.Redis.from_url(redis_server.url) as client:
            client.flushall()
        again = machine.up(REDIS_URL=redis_server.url)
        again.publish(step(3))
        assert again.events("r1") == ["r1-e0001", "r1-e0002", "r1-e0003"], "the same log goes on, on an empty Redis"
        again.stop()
    finally:
        redis_server.stop()


def test_what_other_code_made_is_rebuilt_while_it_is_read(machine: Machine, tmp_path: Path) -> None:
    """C42: nothing but a projection's version changes."""
    up = machine.up()
    up.publish(*(step(n) for n in range(20)))
    until(lambda: all(p["lag_events"] == 0 for p in up.get("/v1/projections")["items"]))
    up.stop()
    (tmp_path / "newer.py").write_text(
        "from dataclasses import replace\n"
        "from projections.registry import PROJECTIONS as OLD\n"
        "PROJECTIONS = {**OLD, 'task_state': replace(OLD['task_state'], version=OLD['task_state'].version + 1)}\n"
    )
    newer = machine.up(REFOLD_PROJECTIONS="newer:PROJECTIONS", PYTHONPATH=f"{tmp_path}:{ROOT}")
    seen = []

    def rebuilt() -> bool:
        seen.append(projection(newer, "task_state"))
        return bool(seen[-1]["generation"] == 2)

    until(rebuilt)
    waiting = [one for one in seen if one["generation"] == 1]
    assert {(one["state"], one["hint"]) for one in waiting} == {
        ("rebuilding", "made by other code: it is being rebuilt")
    }, "nobody is told to do what is being done"
    assert len(newer.get("/v1/tasks/r1")["unplanned_steps"]) == 20
    assert generation(newer, "memory_cards") == 1
    assert newer.stop() == 0


def test_rows_of_a_table_that_only_newer_code_has_must_wait(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "wider.py").write_text(
        "from dataclasses import replace\n"
        "from sqlalchemy import Column, MetaData, Text\n"
        "from projections.projection import read_model_table\n"
        "from projections.registry import PROJECTIONS as OLD\n"
        "old = OLD['settlements']\n"
        "extra = read_model_table(MetaData(), 'extra', Column('name', Text, primary_key=True))\n"
        "PROJECTIONS = {**OLD, 'settlements': replace(old, tables=(*old.tables, extra))}\n"
    )
    redis_server = start_redis(tmp_path / "redis")
    port = str(free_port())
    environ = {"REDIS_URL": redis_server.url, "REFOLD_PROJECTIONS": "wider:PROJECTIONS", "REFOLD_HTTP_PORT": port}
    api = None
    try:
        machine.up(REDIS_URL=redis_server.url).stop()
        # the api alone rebuilds nothing
        process = machine.command("worker", "--role", "api", PYTHONPATH=f"{tmp_path}:{ROOT}", **environ)
        api = Up(process, f"http://127.0.0.1:{port}")
        until(lambda: ready(api))
        path = f"{api.url}/v1/projections/settlements/tables/extra"
        answer = httpx.get(path, timeout=60, trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (503, "stale"), answer.text
        assert projection(api, "settlements")["hint"] == "made by other code: run `refold rebuild settlements`"
    finally:
        if api is not None:
            api.process.terminate()
            api.process.communicate(timeout=60)
        redis_server.stop()


def generation(up: Up, name: str) -> int:
    return int(projection(up, name)["generation"])


def projection(up: Up, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in up.get("/v1/projections")["items"] if item["name"] == name)
    return found
