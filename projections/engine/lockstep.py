"""One partition of several generations, folded side by side, so that the log is read and decoded once for all."""

from __future__ import annotations

from collections.abc import Mapping

from events.errors import RefoldError
from events.event import Position
from projections.engine.folder import PartitionFolder


class Lockstep:
    """Folders of one partition, by generation, over one ``Remembering`` source.

    Whoever is furthest behind goes first, and no further than the next one stands: from there on they go together.
    ``failed`` holds what each one failed of that goes no further; the others go on.
    """

    def __init__(self, folders: Mapping[str, PartitionFolder]) -> None:
        self.folders = dict(folders)
        self.failed: dict[str, RefoldError] = {}

    def step(self, upto: Position) -> int:
        """Fold the next events, none past ``upto``; how many positions are behind us now, 0 when there are no more."""
        behind = {name: f.position for name, f in self.folders.items() if f.position < upto}
        if not behind:
            return 0
        last = min(behind.values())
        barrier = min((position for position in behind.values() if position > last), default=upto)
        return max(self._step(name, barrier) for name, position in behind.items() if position == last)

    def leave(self, name: str) -> None:
        """One generation goes no further."""
        self.folders.pop(name, None)

    def hand_over(self) -> None:
        """Give the partition up cleanly, in every generation that is still here."""
        for folder in self.folders.values():
            folder.hand_over()

    def _step(self, name: str, upto: Position) -> int:
        try:
            return self.folders[name].step(upto).read
        except RefoldError as error:
            self.failed[name] = error
            self.leave(name)
            return 1  # it did not get here, but whoever is left goes on
