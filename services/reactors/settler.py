"""The settler: the notes that every run leaves, however it ended (DESIGN 6).

``run.terminated`` → nothing, when the run settled itself, or when another ending of it counts; *later*, while a run
that settles itself has time left; else ``settlement.degraded`` with mechanical evidence, since there is no model yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from events.event import Recorded
from events.types.settlement import SettlementDegraded, SettlementRecorded
from services.reactors.evidence import evidence
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.trajectory import Trajectory, trajectory

LOOK_AGAIN_S = 5.0


async def settle(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Settle the run that the source event ended, once."""
    events = await reaction.run_events()
    run = trajectory(reaction.so_far(events))
    if run.ending is None or run.ending.position != reaction.source.position:
        return []
    if any(isinstance(recorded.payload, SettlementRecorded) for recorded in events):
        return []
    left_s = _time_left(reaction, run)
    if left_s > 0:
        return Later(min(left_s, LOOK_AGAIN_S))
    source = reaction.event
    data = {
        "version": _version(reaction, events),
        "degraded": "no_model",
        "reason": run.ending.payload.reason,
        "interrupted": run.outcome() == "interrupted",
        "evidence": evidence(run),
    }
    return [
        reaction.derive(
            "settlement.degraded", data,
            agent=source.agent, user=source.user, session=source.session, task=source.task, run=source.run,
        )
    ]  # fmt: skip


def _time_left(reaction: Reaction, run: Trajectory) -> float:
    """Seconds that a run which settles itself still has. A lost one cannot: its agent is gone."""
    started = run.started
    if started is None or started.settles != "agent" or (run.ending and run.ending.payload.reason == "lost"):
        return 0.0
    given_s = reaction.settle_deadline_s if started.settle_deadline_s is None else started.settle_deadline_s
    return given_s - reaction.age_s()


def _version(reaction: Reaction, events: Sequence[Recorded]) -> int:
    """One more than what earlier, provisional endings of the run led to; this ending's own settlement left aside."""
    earlier = (
        recorded.payload.version
        for recorded in events
        if isinstance(recorded.payload, SettlementDegraded) and recorded.event.causation != reaction.event.id
    )
    return max(earlier, default=0) + 1


SETTLER = Reactor(name="settler", handles=frozenset(("run.terminated",)), react=settle)
