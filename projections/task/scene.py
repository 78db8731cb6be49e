"""One event on its way into the task state: what every effect needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from events.event import Event
from projections.bounds import clip
from projections.draft import Draft
from projections.task.tables import KEPT_LATE

TEXT_LIMIT = 2_000
"""Longest text kept of a result, rationale or error, in code points; the original stays in the archive."""

JSON_LIMIT = 4_000
"""Longest JSON kept of arguments and results, in characters."""

Mutable = dict[str, Any]


@dataclass(slots=True)
class Scene:
    """The event, its position, the draft, the task's row, its run's row, and whether it comes late."""

    event: Event
    epoch: int
    n: int
    draft: Draft
    task: Mutable
    run: Mutable | None
    late: bool = False

    def text(self, value: str) -> str:
        """Text cut to what a row keeps."""
        return value if len(value) <= TEXT_LIMIT else clip(value, TEXT_LIMIT)

    def stamp(self, row: Mutable) -> None:
        """Where a row's latest change comes from."""
        row["run"] = self.event.run
        row["epoch"] = self.epoch
        row["n"] = self.n
        if self.late:
            row["late"] = True

    def mark_late(self, reason: str = "") -> None:
        """Keep the event visible as one that came after the end of its run."""
        self.late = True
        row = self.draft.add("late_events", self.task["late"] % KEPT_LATE)
        row.update(
            event_id=self.event.id, type=self.event.type, run=self.event.run, reason=reason, time=self.event.time
        )
        row.update(epoch=self.epoch, n=self.n)
        self.task["late"] += 1
        if self.run is not None:
            self.run["late"] += 1
