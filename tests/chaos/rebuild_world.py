"""A rebuild beside a projector and a reader: its builder is killed or frozen, and nobody may notice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import text

from events.errors import Fenced, Refused
from projections import generations
from projections.engine import checkpoints
from projections.engine.ownership import rebuild_lease
from projections.engine.projector import Projector
from projections.rebuilding.rebuild import rebuild
from tests.chaos.faults import DEADLINE_S, Child, peek
from tests.chaos.projector_world import ProjectorWorld, check_toy, first_events, is_caught_up, more_events
from tests.chaos.rounds import BLOCKED_S
from tests.contracts.engine_lab import TOY, Lab

POLL_S = 0.03
LEASE_S = 0.5
"""Of the projector, which also gives a seal that long before it takes it for a leftover."""

_EXPIRE = text("UPDATE leases SET expires_ms = 0 WHERE name = :name")


class RebuildWorld(ProjectorWorld):
    """The victim is the builder; a projector folds all the while, and a reader looks that no read goes back."""

    def make_template(self) -> None:
        Lab(self.stores()).archive(*first_events())
        self.project()

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        projector = self.fork("projector", self.keep_projecting)
        reader = self.fork("reader", self.read)
        victim = armed(self.build)
        stopped = victim.wait(stopped=True) == "stopped"
        assert stopped or victim.state in (0, -signal.SIGKILL), victim.state
        if stopped:
            other = self.fork("other builder", self.take_over)
            other.wait(BLOCKED_S)
            victim.send(signal.SIGCONT)
            other.must_end_well()
            victim.must_end_well()
        else:
            self.run("lease ends", self.expire_builder)
        self.run("the projector goes on", self.publish_and_see)
        if victim.state != 0:
            self.run("next builder", self.build)
        for child in (projector, reader):
            child.send(signal.SIGTERM)
            child.must_end_well()
        self.run("check", lambda: check_toy(Lab(self.stores())))

    def take_over(self) -> None:
        """Build in the place of who lost its lease."""
        self.expire_builder()
        self.build()

    def build(self) -> None:
        """Rebuild, with a check. Whoever lost its lease is told so."""
        stores = self.stores()
        log = stores.log()
        with suppress(Fenced):
            try:
                rebuild(TOY, stores, log, verify=True, processes=1, batch=5, lease_ttl_s=60)
            except Refused as refused:
                if refused.code != "already_rebuilding":
                    raise
        log.close()

    def keep_projecting(self) -> None:
        """A projector until SIGTERM."""

        async def main() -> None:
            stopping = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
            stores = self.stores()
            log = stores.log()
            projector = Projector([TOY], stores, log, lease_ttl_s=LEASE_S, poll_s=POLL_S)
            await projector.start()
            await stopping.wait()
            await projector.stop()
            log.close()

        asyncio.run(main())

    def read(self) -> None:
        """Look until SIGTERM that what is read never goes back."""
        stopping: list[int] = []
        signal.signal(signal.SIGTERM, lambda signum, _: stopping.append(signum))
        stores = self.stores()
        log = stores.log()
        read: dict[int, Any] = {}
        while not stopping:
            active = peek(log, lambda conn: generations.active(conn, TOY.name))
            assert active is not None
            vector = peek(stores.generation(active.name), checkpoints.read_vector)
            assert all(vector[p] >= position for p, position in read.items()), f"{active.name} is read, and goes back"
            read = vector
            time.sleep(POLL_S / 3)

    def publish_and_see(self) -> None:
        """Whatever the builder left: new events are folded without any other rebuild."""
        Lab(self.stores()).archive(*more_events())
        deadline = time.monotonic() + DEADLINE_S
        while not is_caught_up(self):
            assert time.monotonic() < deadline, "the read model stands still"
            time.sleep(POLL_S / 3)

    def expire_builder(self) -> None:
        """Let the time pass that the builder's lease lasts."""
        log = self.stores().log()
        log.write_now(lambda conn: conn.execute(_EXPIRE, {"name": rebuild_lease(TOY.name)}))
        log.close()


WORLD = RebuildWorld
