"""The victim is a publisher in mid-append: whoever has its events sends them again, beside it or after it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.chaos.faults import Child
from tests.chaos.log_world import LogWorld


class PublisherWorld(LogWorld):
    """Publishers."""

    def broken_by(self, armed: Callable[[Callable[[], Any]], Child], signum: signal.Signals) -> None:
        archiver = self.fork("archiver", self.archive)
        victim = armed(self.publish)
        if victim.wait(stopped=True) != 0:
            self.run("other publisher", self.publish)
        if victim.state == "stopped":
            victim.send(signal.SIGCONT)
            victim.must_end_well()
        assert victim.state in (0, -signal.SIGKILL), victim.state
        archiver.send(signal.SIGTERM)
        archiver.must_end_well()
        self.run("check", self.check)


WORLD = PublisherWorld
