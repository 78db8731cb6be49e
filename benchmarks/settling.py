"""Settling: 200 finished runs against a model that takes 200 ms, 16 at once; and the mechanical fallback, a run.

Peer of the first: the ideal, runs ÷ concurrency × latency, which no settler can be faster than. It is measured for the
settler in a process of its own, on an archive that takes in at once what it is given, and beside it, without a target,
for `refold up` as it comes, where one process does everything else too. The model is a server in a process of its own;
how long the same calls take with nothing around them is told first.
The fallback is timed on a run of 400 events with outputs of 4,000 characters; it has no peer, but a limit of 50 ms.

    python -m benchmarks.settling [--events RUNS]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import psutil
from sqlalchemy import func, select

from events import door
from events.archive import store
from events.archive.schema import event_log, metadata
from events.database import Database, Stores
from events.event import Position, Recorded
from events.registry import decode_payload
from services.models.client import Models
from services.models.routes import Route, Routes
from services.reactors.checkpoints import introduce
from services.reactors.evidence import evidence
from services.reactors.reactor import Outside
from services.reactors.settler import SETTLER
from services.reactors.trajectory import trajectory
from tests.instance import Instance, running_instance
from tests.integration.reactor_lab import PARTITIONS, ArchiveOutlet, loop_of, put, wait_for
from tests.model_server import good

LATENCY_S, CONCURRENCY = 0.2, 16
STEPS = 100


class Model(asyncio.Protocol):
    """A connection to a model that takes its time, and next to none of the processor: a peer must not be in the way."""

    answered = 0

    def __init__(self) -> None:
        said = orjson.dumps(good().body)
        self._answer = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(said) + said
        )
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connects."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request, or a part of it; one at a time on a connection."""
        self._got += data
        head, _, body = self._got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if length is not None and len(body) >= int(length[1]):
            self._got = b""
            asyncio.get_running_loop().call_later(LATENCY_S, self._say)

    def _say(self) -> None:
        Model.answered += 1
        self._transport.write(self._answer)


def serve(pipe: Connection) -> None:
    """The model, until the other end of the pipe says that it is enough."""

    async def until_enough() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Model, "127.0.0.1", 0)
        pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await loop.run_in_executor(None, pipe.recv)
        pipe.send(Model.answered)
        server.close()

    asyncio.run(until_enough())


def run_events(run: str) -> list[dict[str, Any]]:
    """A short conversation with one call, and its end."""
    said = [
        ("run.started", {"goal": "fix it", "model": "m", "system_prompt": {"digest": "d", "content": "Be careful."}}),
        ("message.added", {"role": "user", "content": f"please fix {run}"}),
        ("tool.called", {"call_id": "c", "name": "bash", "arguments": {"command": "make"}}),
        ("tool.returned", {"call_id": "c", "result": {"exit_code": 0, "output": "x" * 500}}),
        ("message.added", {"role": "assistant", "content": "done"}),
        ("run.terminated", {"reason": "end_turn"}),
    ]
    names = {"run": run, "task": run, "session": f"s-{run}", "time": "2026-03-01T10:00:00Z"}
    return [{**names, "id": f"{run}-{n}", "type": kind, "data": data} for n, (kind, data) in enumerate(said)]


def settled(log: Database) -> int:
    """How many settlements the archive holds: a question that costs the backend itself nothing."""
    recorded = select(func.count()).select_from(event_log).where(event_log.c.type == "settlement.recorded")
    return int(log.read_now(lambda conn: conn.execute(recorded).scalar_one()))


def cpu_s(instance: Instance) -> float:
    """Seconds of processor time that the backend has taken."""
    times = psutil.Process(instance.process.pid).cpu_times()
    return float(times.user + times.system)


@contextmanager
def model_process(calls: int) -> Iterator[str]:
    """The address of a model in a process of its own, which must have been asked so often in the end."""
    here, there = multiprocessing.Pipe()
    model = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    model.start()
    yield here.recv()
    here.send("enough")
    asked = here.recv()
    model.join()
    assert asked == calls, f"{asked} calls instead of {calls}"


def alone(runs: int) -> float:
    """Seconds until the settler, alone on an archive, has settled so many runs."""
    with model_process(runs + CONCURRENCY) as url, tempfile.TemporaryDirectory() as folder:
        log = Stores(f"sqlite:///{folder}/db").log()
        log.write_now(metadata.create_all)
        log.write_now(lambda conn: store.open_log(conn, PARTITIONS, 0))
        log.write_now(lambda conn: introduce(conn, [SETTLER]))
        took = asyncio.run(_settle_alone(log, url, runs))
        log.close()
    return took


async def _settle_alone(log: Database, url: str, runs: int) -> float:
    models = Models(Routes(models=[Route(model="m", base_url=url, concurrency=CONCURRENCY)]))
    loop = loop_of(log, ArchiveOutlet(log), SETTLER, concurrency=2 * CONCURRENCY, outside=Outside(models), lease_s=10.0)
    stopping = asyncio.Event()
    running = asyncio.create_task(loop.run(stopping))
    put(log, *[door.admit(raw) for n in range(CONCURRENCY) for raw in run_events(f"warm{n}")])
    await wait_for(lambda: settled(log) == CONCURRENCY)
    batches = [[door.admit(raw) for raw in run_events(f"r{n}")] for n in range(runs)]
    put(log, *[event for batch in batches for event in batch[:-1]])
    put(log, *[batch[-1] for batch in batches])
    began = time.perf_counter()
    loop.wake()
    await wait_for(lambda: settled(log) == CONCURRENCY + runs)
    took = time.perf_counter() - began
    stopping.set()
    await running
    await models.close()
    return took


def calls_alone(runs: int) -> float:
    """Seconds of so many calls by the client of the settler, and nothing else."""
    with model_process(runs + CONCURRENCY) as url:
        return asyncio.run(_call(url, runs))


async def _call(url: str, runs: int) -> float:
    models = Models(Routes(models=[Route(model="m", base_url=url, concurrency=CONCURRENCY)]))
    said = [{"role": "user", "content": "x" * 500} for _ in range(6)]
    await asyncio.gather(*(models.ask("", "m", said) for _ in range(CONCURRENCY)))
    began = time.perf_counter()
    await asyncio.gather(*(models.ask("", "m", said) for _ in range(runs)))
    took = time.perf_counter() - began
    await models.close()
    return took


def settle(runs: int) -> tuple[float, float]:
    """Seconds from the publish of all ends until the last run is settled, and of processor time meanwhile."""
    with model_process(runs + CONCURRENCY) as url, tempfile.TemporaryDirectory() as folder:
        return _settle_up(Path(folder) / "data", url, runs)


def _settle_up(data: Path, url: str, runs: int) -> tuple[float, float]:
    with running_instance(data, REFOLD_MODEL_URL=url) as up:
        warm = [event for n in range(CONCURRENCY) for event in run_events(f"warm{n}")]
        log = Stores(up.stores_url).log()
        up.stored(*warm)
        while settled(log) < CONCURRENCY:
            time.sleep(0.05)
        batches = [run_events(f"r{n}") for n in range(runs)]
        up.stored(*[event for batch in batches for event in batch[:-1]])
        began, cpu = time.perf_counter(), cpu_s(up)
        up.stored(*[batch[-1] for batch in batches])
        while settled(log) < CONCURRENCY + runs:
            time.sleep(0.02)
        took, cpu = time.perf_counter() - began, cpu_s(up) - cpu
        log.close()
    return took, cpu


def long_run() -> list[Recorded]:
    """The events of a run of many steps, with calls, long outputs and failures."""
    raws: list[tuple[str, dict[str, Any]]] = [("run.started", {"goal": "fix it"})]
    for n in range(STEPS):
        command = {"command": f"pytest -k case_{n} --token=sk-{n:020}abcdef"}
        raws += [
            ("message.added", {"role": "assistant", "content": f"I look at case {n}. " * 20}),
            ("tool.called", {"call_id": f"c{n}", "name": "bash", "arguments": command, "side_effect": n % 3 == 0}),
            ("tool.returned", {"call_id": f"c{n}", "result": {"exit_code": n % 2, "output": f"line {n}\n" * 500}}),
            ("decision.made", {"chosen": f"way {n}", "rationale": "it is shorter " * 10}),
        ]
    events = []
    for n, (kind, data) in enumerate([*raws, ("run.terminated", {"reason": "timeout"})]):
        event = door.admit({"id": f"e{n}", "type": kind, "run": "r", "task": "t", "data": data})
        events.append(Recorded(0, Position(1, n), event, decode_payload(event)))
    return events


def fallback_ms() -> float:
    """Milliseconds of the fallback of one run, its events decoded."""
    events, took = long_run(), []
    for _ in range(50):
        began = time.perf_counter()
        facts = evidence(trajectory(events))
        took.append((time.perf_counter() - began) * 1000)
    assert len(facts) > 20
    return statistics.median(took)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200, metavar="RUNS", help="finished runs (default 200)")
    runs = parser.parse_args().events
    print(f"fallback: {fallback_ms():.1f} ms a run of {4 * STEPS} events (at most 50)")
    ideal = runs / CONCURRENCY * LATENCY_S
    print(
        f"{runs} calls of a model, {CONCURRENCY} at once, and nothing else: {calls_alone(runs) / ideal:.2f} x the ideal"
    )
    took = alone(runs)
    print(f"settling {runs} runs, {CONCURRENCY} at once: {took:.2f} s, {took / ideal:.2f} x the ideal (at most 1.3)")
    took, cpu = settle(runs)
    told = f"{took:.2f} s, {took / ideal:.2f} x the ideal, {cpu:.2f} s of processor time"
    print(f"the same by `refold up`, which does all else in the same process: {told}")


if __name__ == "__main__":
    main()
