"""The victim is a publisher in mid-append: whoever has its events sends them again, beside it or after it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.chaos.faults import Child
from tests.chaos.log_world import LogWorld
from tests.chaos.rounds import BLOCKED_S


class PublisherWorld(LogWorld):
    """Publishers."""

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        archiver = self.fork("archiver", self.archive)
        victim = armed(self.publish)
        if victim.wait(stopped=True) != 0:
            other = self.fork("other publisher", self.publish)
            other.wait(BLOCKED_S)
            victim.send(signal.SIGCONT)
            other.must_end_well()
            victim.wait()
        assert victim.state in (0, -signal.SIGKILL), victim.state
        archiver.send(signal.SIGTERM)
        archiver.must_end_well()
        self.run("check", self.check)


WORLD = PublisherWorld
