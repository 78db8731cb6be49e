"""Settling: 200 finished runs against a model that takes 200 ms, 16 at once; and the mechanical fallback, a run.

Peer of the first: the ideal, runs ÷ concurrency × latency, which no settler can be faster than. The model server is a
process of its own, the backend `refold up` as it comes. The fallback is timed on runs as long as those of real agents:
400 events, outputs of 4,000 characters; it has no peer, but a limit of 50 ms.

    python -m benchmarks.settling [--events RUNS]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import func, select

from events import door
from events.archive.schema import event_log
from events.database import Database, Stores
from events.event import Position, Recorded
from events.registry import decode_payload
from services.reactors.evidence import evidence
from services.reactors.trajectory import trajectory
from tests.instance import Instance, running_instance
from tests.model_server import good, model_server

LATENCY_S, CONCURRENCY = 0.2, 16
STEPS = 100


def serve(pipe: Connection) -> None:
    """The model, until the other end of the pipe closes."""
    with model_server(lambda body: good(after_s=LATENCY_S)) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send(len(server.requests))


def run_events(instance: Instance, run: str) -> list[dict[str, Any]]:
    """A short conversation with one call, and its end."""
    said = [
        ("run.started", {"goal": "fix it", "model": "m", "system_prompt": {"digest": "d", "content": "Be careful."}}),
        ("message.added", {"role": "user", "content": f"please fix {run}"}),
        ("tool.called", {"call_id": "c", "name": "bash", "arguments": {"command": "make"}}),
        ("tool.returned", {"call_id": "c", "result": {"exit_code": 0, "output": "x" * 500}}),
        ("message.added", {"role": "assistant", "content": "done"}),
        ("run.terminated", {"reason": "end_turn"}),
    ]
    return [instance.event(run, kind, data, session=f"s-{run}") for kind, data in said]


def settled(log: Database) -> int:
    """How many settlements the archive holds: a question that costs the backend itself nothing."""
    recorded = select(func.count()).select_from(event_log).where(event_log.c.type == "settlement.recorded")
    return int(log.read_now(lambda conn: conn.execute(recorded).scalar_one()))


def cpu_s(instance: Instance) -> float:
    """Seconds of processor time that the backend has taken."""
    times = psutil.Process(instance.process.pid).cpu_times()
    return float(times.user + times.system)


def settle(runs: int) -> tuple[float, float]:
    """Seconds from the publish of all ends until the last run is settled, and of processor time meanwhile."""
    here, there = multiprocessing.Pipe()
    model = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    model.start()
    url = here.recv()
    with tempfile.TemporaryDirectory() as folder, running_instance(Path(folder) / "data", REFOLD_MODEL_URL=url) as up:
        warm = [event for n in range(CONCURRENCY) for event in run_events(up, f"warm{n}")]
        log = Stores(up.stores_url).log()
        up.stored(*warm)
        while settled(log) < CONCURRENCY:
            time.sleep(0.05)
        batches = [run_events(up, f"r{n}") for n in range(runs)]
        up.stored(*[event for batch in batches for event in batch[:-1]])
        began, cpu = time.perf_counter(), cpu_s(up)
        up.stored(*[batch[-1] for batch in batches])
        while settled(log) < CONCURRENCY + runs:
            time.sleep(0.02)
        took, cpu = time.perf_counter() - began, cpu_s(up) - cpu
        log.close()
    here.send("enough")
    calls = here.recv()
    model.join()
    assert calls == runs + CONCURRENCY, f"{calls} calls for {runs + CONCURRENCY} runs"
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
    took, cpu = settle(runs)
    ideal = runs / CONCURRENCY * LATENCY_S
    told = f"{took:.2f} s, {took / ideal:.2f} x the ideal (at most 1.3), {cpu:.2f} s of processor time"
    print(f"settling {runs} runs, {CONCURRENCY} at once: {told}")


if __name__ == "__main__":
    main()
