"""Long work as whoever started it sees it: how far it is, and that it was cancelled."""

from __future__ import annotations

from dataclasses import dataclass

from events.errors import RefoldError


class Cancelled(RefoldError):
    """The work was cancelled; the generation that was being made is dropped, and nothing else has changed."""


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is. ``phase``: folding, verifying, swapping, done. ``eta_s`` is None while it is unknown."""

    phase: str
    done: int
    total: int
    events_per_s: float
    eta_s: float | None
