"""The case of one run that is to be settled: what its events say of it, and what came of earlier tries. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from events.event import Recorded
from events.types.settlement import SettlementAttempted, SettlementDegraded, SettlementRecorded, SettlementRequested
from services.reactors.trajectory import Ending, Trajectory, trajectory


@dataclass(frozen=True)
class Case:
    """A run to settle, for one source event: its ending, or somebody's request to settle it again.

    ``events`` are those that count for it, ``attempts`` the calls already made for this source, the agent's own among
    them. ``version`` is that of the settlement to come.
    """

    run: Trajectory
    ending: Ending
    events: Sequence[Recorded]
    attempts: Sequence[SettlementAttempted]
    version: int

    @property
    def model(self) -> str:
        """The run's own model; empty when it named none, or never started."""
        return self.run.started.model if self.run.started else ""

    @property
    def errors(self) -> list[str]:
        """What was wrong with the answers so far."""
        return [tried.error for tried in self.attempts if tried.failed in ("invalid_output", "refused")]

    @property
    def gave_up(self) -> SettlementAttempted | None:
        """The last try of an agent that could not settle itself."""
        return next((tried for tried in self.attempts if tried.gave_up), None)

    def told_ending(self) -> str:
        """How the run ended, in words."""
        payload = self.ending.payload
        detail = f" ({payload.detail})" if payload.detail else ""
        interrupted = "; it was interrupted, so what was under way is not done" if self.is_interrupted else ""
        return f"{payload.reason}{detail}{interrupted}"

    @property
    def is_interrupted(self) -> bool:
        """Whether the run ended before its work did."""
        return self.run.outcome() == "interrupted"


def open_case(source: Recorded, events: Sequence[Recorded]) -> Case | None:
    """The case that a source event opens, given all events of its run; None when there is nothing to settle.

    There is not when another ending counts, when the agent has settled the run itself, and when this very source has
    led to a settlement already.
    """
    if isinstance(source.payload, SettlementRequested):
        return _requested(source, source.payload, events)
    here = [e for e in events if e.partition == source.partition and e.position <= source.position]
    run = trajectory(here)
    if run.ending is None or run.ending.position != source.position:
        return None
    settled = [e for e in events if isinstance(e.payload, (SettlementRecorded, SettlementDegraded))]
    if any(_of(source, e) or (isinstance(e.payload, SettlementRecorded) and e.payload.by == "agent") for e in settled):
        return None
    attempts = [
        e.payload
        for e in events
        if isinstance(e.payload, SettlementAttempted) and (_of(source, e) or e.payload.by == "agent")
    ]
    return Case(run, run.ending, here, attempts, max(map(_version, settled), default=0) + 1)


def _requested(source: Recorded, payload: SettlementRequested, events: Sequence[Recorded]) -> Case | None:
    run = trajectory(events)
    settled = [e for e in events if isinstance(e.payload, (SettlementRecorded, SettlementDegraded))]
    if run.ending is None or any(_version(e) >= payload.version for e in settled):
        return None
    attempts = [e.payload for e in events if isinstance(e.payload, SettlementAttempted) and _of(source, e)]
    ended = run.ending
    here = [e for e in events if e.event.key != ended.event.key or e.position <= ended.position]
    return Case(run, ended, here, attempts, payload.version)


def _of(source: Recorded, derived: Recorded) -> bool:
    """Whether an event was derived from the source by the settler."""
    return derived.event.causation == source.event.id and derived.event.source == "refold/settler"


def _version(recorded: Recorded) -> int:
    payload = recorded.payload
    return payload.version if isinstance(payload, (SettlementRecorded, SettlementDegraded)) else 0
