"""A projector folds an archive with every hazard: notes, calls, a poison event, what waits behind it, a discard."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from math import inf
from typing import Any

from sqlalchemy import text

from events.archive import queries
from events.database import Database, Stores
from events.event import START, Event
from projections import generations
from projections.engine import checkpoints
from projections.engine.projector import Projector
from projections.rebuilding.verify import verify
from tests.chaos.faults import Child, peek
from tests.chaos.rounds import BLOCKED_S, World
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, discard, dump, event, naive, note

LEASE_S = 60.0
PATIENCE_S = 5.0
"""How long who takes over looks on while somebody else holds leases."""


def first_events() -> list[Event]:
    """What the archive holds at the beginning."""
    events = [note(f"n{number}", f"t{number % 3}", f"k{number % 2}", {"n": number}) for number in range(6)]
    events += [event("tool.called", "c1", "t0", {"call_id": "c", "name": "x", "arguments": {}})]
    events += [note("bad", "t1", "poison"), note("behind", "t1", "k1"), note("n0", "t0", "k0", {"n": 0})]
    return [*events, discard("d1", "t1", "bad"), note("last", "t2", "k2")]


def more_events() -> list[Event]:
    """What comes while somebody sleeps."""
    return [note(f"m{number}", f"t{number}", "k0", number) for number in range(3)]


class ProjectorWorld(World):
    """The victim is a projector; another one goes on for it."""

    def make_template(self) -> None:
        Lab(self.stores()).archive(*first_events())

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        victim = armed(self.project)
        if signum == signal.SIGSTOP and victim.wait(stopped=True) == "stopped":
            other = self.fork("other projector", self.go_on)
            other.wait(BLOCKED_S)
            victim.send(signal.SIGCONT)
            other.must_end_well()
            victim.must_end_well()
        else:
            assert victim.wait() in (0, -signal.SIGKILL), victim.state
        self.run("check", self.check)

    def project(self) -> None:
        """Fold all there is."""
        asyncio.run(self._project())

    def go_on(self) -> None:
        """The lease of who was there runs out: fold in its place, and what comes then."""
        self.take_over()
        Lab(self.stores()).archive(*more_events())
        self.take_over()

    def take_over(self) -> None:
        """Fold all there is. Whoever woke may take leases again at any moment, and rest: they run out once more."""
        folded = False
        while not folded:
            self.expire_leases()
            folded = asyncio.run(self._project(PATIENCE_S))

    def check(self) -> None:
        """Fold the rest, and compare with the plainest fold and with a refold."""
        self.expire_leases()
        self.project()
        check_toy(Lab(self.stores()))

    def expire_leases(self) -> None:
        """Let the time pass that leases last."""
        log = self.stores().log()
        log.write_now(lambda conn: conn.execute(text("UPDATE leases SET expires_ms = 0")))
        log.close()

    async def _project(self, patience_s: float = inf) -> bool:
        stores = self.stores()
        log = stores.log()
        projector = Projector([TOY], stores, log, lease_ttl_s=LEASE_S, poll_s=LEASE_S)
        await projector.start()
        deadline = time.monotonic() + patience_s
        while not (folded := await asyncio.to_thread(is_caught_up, self)) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # nobody tells the test
        await projector.stop()
        log.close()
        return folded


def is_caught_up(world: World) -> bool:
    """Whether the generation that is read has all that the archive has."""
    stores = world.stores()
    return is_folded(stores, stores.log())


def is_folded(stores: Stores, log: Database) -> bool:
    """Whether the generation that is read has all that the archive has."""
    active, marks = peek(log, lambda conn: (generations.active(conn, TOY.name), queries.read_watermarks(conn)))
    if active is None:
        return False
    vector = peek(stores.generation(active.name), checkpoints.read_vector)
    return all(vector[partition] >= mark for partition, mark in marks.items() if mark.n >= 0)


def check_toy(lab: Lab) -> None:
    """The active generation holds what the plainest fold of the archive gives, and equals a refold."""
    logs = {
        p: [(a.position, a.event()) for a in lab.log.read_now(lambda c, p=p: queries.read_log(c, p, START, 1000))]
        for p in range(PARTITIONS)
    }
    active = lab.log.read_now(lambda conn: generations.active(conn, TOY.name))
    assert active is not None
    db = lab.stores.generation(active.name)
    assert dump(db, letters=False) == {name: rows for name, rows in naive(logs).items() if name in _tables()}
    found = verify(TOY, lab.stores, lab.log)
    assert found.equal, found.first_differences
    db.close()
    lab.log.close()


def _tables() -> set[str]:
    return {table.name for table in TOY.tables}


WORLD = ProjectorWorld
