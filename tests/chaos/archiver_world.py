"""The victim is the archiver: the publisher that waits for it lives on, and another archiver takes its place."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.chaos.faults import Child
from tests.chaos.log_world import LogWorld
from tests.chaos.rounds import BLOCKED_S


class ArchiverWorld(LogWorld):
    """Archivers."""

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        victim = armed(self.archive)
        publisher = self.fork("publisher", self.publish)
        while publisher.poll() == "running" and victim.poll() == "running":
            publisher.wait(0.01)
        if victim.poll() == "running":
            victim.send(signal.SIGTERM)
            victim.wait(stopped=True)
        others = [self.fork("other archiver", self.archive)]
        if victim.state == "stopped":
            publisher.wait(BLOCKED_S)
            victim.send(signal.SIGCONT)
            others.append(victim)
        publisher.must_end_well()
        self.run("next publisher", lambda: self.publish("next"))
        for archiver in others:
            archiver.send(signal.SIGTERM)
            archiver.must_end_well()
        self.run("check", self.check)


WORLD = ArchiverWorld
