"""Settler and hindsight beside a publisher and an archiver: the process that runs them is killed or frozen."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, func, select, text

from events.archive import queries
from events.archive.schema import reactor_checkpoints, refused_events
from events.event import START, Position
from events.publisher import Publisher
from services.apps.reactors import DoorOutlet
from services.reactors import partition
from services.reactors.checkpoints import introduce
from services.reactors.loop import ReactorLoop
from services.reactors.registry import REACTORS
from tests.chaos.faults import DEADLINE_S, Child, peek
from tests.chaos.log_world import _QUICK, PARTITIONS, LogWorld

POLL_S = 0.01
LEASE_S = 60.0
"""No lease ends while a round lasts, unless the test lets it end."""

SLEEP_S = 1.5
"""How long the others get while a process sleeps: enough to do all of its work, unless it sleeps with a lock."""

SELF_SETTLED_S = 0.2
"""What the run that says it settles itself, and does not, has for that: its reaction waits meanwhile."""

_QUICK += [(partition, "COMMIT_S", 0.02), (partition, "POLL_S", 0.05), (partition, "PACE_S", 0.01)]

DERIVED = ("settlement.degraded", "experience.recorded")

ENDINGS: Mapping[str, tuple[dict[str, Any], list[tuple[str, dict[str, Any]]], Mapping[str, int]]] = {
    "plain": ({}, [("run.terminated", {"reason": "end_turn"})], {"settlement.degraded": 1, "experience.recorded": 2}),
    "twice": (
        {},
        [("run.terminated", {"reason": "interrupt"}), ("run.terminated", {"reason": "end_turn"})],
        {"settlement.degraded": 1, "experience.recorded": 2},
    ),
    "settled": (
        {"settles": "agent", "settle_deadline_s": 600},
        [("settlement.recorded", {"session_state": {}}), ("run.terminated", {"reason": "end_turn"})],
        {"experience.recorded": 2},
    ),
    "late": (
        {"settles": "agent", "settle_deadline_s": SELF_SETTLED_S},
        [("run.terminated", {"reason": "timeout"})],
        {"settlement.degraded": 1, "experience.recorded": 2},
    ),
    "open": ({}, [], {}),
}
"""How a run starts, how it ends, and how many events of each type that leads to."""


def run_events(run: str, ending: str) -> list[dict[str, Any]]:
    """The raw events of one run."""
    started, ends, _ = ENDINGS[ending]
    events = [
        ("run.started", {"goal": "fix it", **started}),
        ("tool.called", {"call_id": "c", "name": "bash", "arguments": {"command": "make"}}),
        ("tool.returned", {"call_id": "c", "result": "ok"}),
        *ends,
    ]
    names = {"run": run, "session": f"session-{run}", "user": "u", "agent": "a", "time": "2026-03-01T10:00:00Z"}
    return [{**names, "id": f"{run}-{n}", "type": kind, "data": data} for n, (kind, data) in enumerate(events)]


class ReactorWorld(LogWorld):
    """The victim runs the reactors. A watcher looks that no checkpoint goes back."""

    def make_template(self) -> None:
        super().make_template()
        log = self.stores().log()
        log.write_now(lambda conn: introduce(conn, REACTORS))
        log.close()

    def batches(self, prefix: str) -> list[list[dict[str, Any]]]:
        return [[event for ending in ENDINGS for event in run_events(f"{prefix}-{ending}", ending)]]

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        archiver = self.fork("archiver", self.archive)
        self.run("publisher", self.publish)
        watcher = self.fork("watcher", self.watch)
        victim = armed(self.react)
        if victim.wait(stopped=True) == "stopped":
            other = self.fork("other reactors", self.go_on)
            other.wait(SLEEP_S)
            victim.send(signal.SIGCONT)
            other.must_end_well()
            victim.must_end_well()
        else:
            assert victim.state in (0, -signal.SIGKILL), victim.state
            self.run("next reactors", self.go_on)
        for child in (watcher, archiver):
            child.send(signal.SIGTERM)
            child.must_end_well()
        self.run("check", self.check)

    def go_on(self) -> None:
        """The leases of who was there run out: react in its place, and to what comes then."""
        log = self.stores().log()
        log.write_now(lambda conn: conn.execute(text("UPDATE leases SET expires_ms = 0")))
        log.close()
        self.publish("more")
        self.react()

    def react(self) -> None:
        """React to all there is."""
        asyncio.run(self._react())

    def watch(self) -> None:
        """Look until SIGTERM that no checkpoint goes back."""
        stopping: list[int] = []
        signal.signal(signal.SIGTERM, lambda signum, _: stopping.append(signum))
        log = self.stores().log()
        seen: dict[tuple[str, int], Position] = {}
        while not stopping:
            now = peek(log, _checkpoints)
            assert all(now[unit] >= position for unit, position in seen.items()), f"from {seen} back to {now}"
            seen = now
            time.sleep(POLL_S)

    def check(self) -> None:
        """Each run led to exactly what its ending asks for; nothing was refused, in conflict or left behind."""
        log = self.stores().log()
        rows = [a for p in range(PARTITIONS) for a in log.read_now(lambda c, p=p: queries.read_log(c, p, START, 9999))]
        derived = [a.event() for a in rows if a.type in DERIVED and a.verdict == "effective"]
        found = Counter((event.correlation, event.type) for event in derived)
        expected = {
            (f"{prefix}-{ending}", kind): number
            for prefix in ("first", "more")
            for ending, (_, _, counts) in ENDINGS.items()
            for kind, number in counts.items()
        }
        assert found == expected
        assert {a.verdict for a in rows} <= {"effective", "duplicate_of"}
        assert log.read_now(lambda conn: conn.execute(select(func.count()).select_from(refused_events)).scalar()) == 0
        assert log.read_now(_is_all_done)
        log.close()

    async def _react(self) -> None:
        async with self._open() as (client, log):
            publisher = Publisher(client, log, PARTITIONS, timeout_s=20)
            await publisher.start()
            loop = ReactorLoop(
                log, DoorOutlet(publisher, log), REACTORS, PARTITIONS, f"p{time.monotonic_ns()}", LEASE_S
            )
            stopping = asyncio.Event()
            running = asyncio.create_task(loop.run(stopping))
            deadline = time.monotonic() + DEADLINE_S
            while not running.done() and not await asyncio.to_thread(peek, log, _is_all_done):
                assert time.monotonic() < deadline, await asyncio.to_thread(peek, log, _checkpoints)
                await asyncio.sleep(POLL_S)
            stopping.set()
            await running
            await publisher.stop()


def _checkpoints(conn: Connection) -> dict[tuple[str, int], Position]:
    table = reactor_checkpoints.c
    rows = conn.execute(select(table.reactor, table.partition, table.epoch, table.n))
    return {(reactor, p): Position(epoch, n) for reactor, p, epoch, n in rows}


def _is_all_done(conn: Connection) -> bool:
    """Whether every reactor has come to the end of the archive: what it derived is archived, and read, too."""
    marks = queries.read_watermarks(conn)
    return all(position == marks[p] for (_, p), position in _checkpoints(conn).items())


WORLD = ReactorWorld
