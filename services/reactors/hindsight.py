"""Hindsight: what a run was worth learning from, when it has ended, and whenever somebody judges it later (DESIGN 6).

    run.terminated    the run is looked back on, if this is the ending that counts
    feedback.given    on a run that has ended: again, as its next revision; the same feedback twice changes nothing

Each time two ``experience.recorded``: the whole sheet to the user's scope, value-free statistics to the agent's, so
that no user's words travel. They carry the time of the run's ending. Ids hold the deriver's version, and so does the
reactor's checkpoint: code with a new version reads the log from its start and derives every run again, and nothing
else is done again (the other reactors have checkpoints of their own).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from events.event import Event, Recorded
from events.registry import FROM_OUTSIDE
from events.types.belief import owner_of
from events.types.run import RunTerminated
from events.types.world import FeedbackGiven
from services.reactors.experience import DERIVER_VERSION, Hindsight, key_nodes
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.trajectory import Ending, Trajectory, trajectory


@dataclass(frozen=True)
class Ended:
    """A run that is over, and how often it was judged so far: its endings that counted, and distinct feedbacks."""

    run: Trajectory
    ending: Ending
    revision: int


def ended_run(events: Sequence[Recorded]) -> Ended | None:
    """The run as it is to be judged after these events, in log order; None when the last of them changes nothing.

    What comes after the ending that counts is no part of the run, but for feedback. ``lost`` gives way to a sign of
    life: the run goes on, and its next ending is judged anew.
    """
    counted: list[Recorded] = []
    over: RunTerminated | None = None
    feedback: set[FeedbackGiven] = set()
    revision, is_news = 0, False
    for recorded in events:
        payload, is_news = recorded.payload, False
        if isinstance(payload, FeedbackGiven):
            is_news = over is not None and payload not in feedback
            revision += payload not in feedback
            feedback.add(payload)
        elif over is not None and over.reason != "lost":
            continue
        elif isinstance(payload, RunTerminated):
            over, is_news = payload, True
            revision += 1
        elif recorded.event.type not in FROM_OUTSIDE:
            over = None
        counted.append(recorded)
    run = trajectory(counted) if is_news else None
    return Ended(run, run.ending, revision) if run and run.ending else None


async def look_back(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Derive the experience of the run that the source event ended, or judges."""
    if not reaction.event.run or not reaction.event.key.startswith("task/"):
        return []
    events = reaction.so_far(await reaction.run_events())
    return await asyncio.to_thread(_derived, reaction, events)  # a run of 10,000 calls takes half a second


def experience_of(ended: Ended, *, user: str = "", agent: str = "") -> dict[str, dict[str, Any]]:
    """Level -> what a run is worth to it: the whole sheet to its user, value-free statistics to its agent."""
    seen, found = Hindsight(ended.run), {}
    common = {
        "run": ended.ending.event.run,
        "deriver_version": DERIVER_VERSION,
        "revision": ended.revision,
        "counts": msgspec.to_builtins(seen.counts),
        "deviation": seen.deviation,
        "path": seen.path,
        "path_label": seen.path_label,
    }
    if user:
        kept = key_nodes(seen.nodes)
        sheet = {**seen.sheet, "nodes_left_out": len(seen.nodes) - len(kept)}
        found["user"] = {**common, "scope": "user", "nodes": msgspec.to_builtins(kept), "sheet": sheet}
    if agent and (seen.counts or seen.path):
        owner = owner_of(ended.ending.event.org, user)
        found["agent"] = {**common, "scope": "agent", "fatal": msgspec.to_builtins(seen.fatal), "owner": owner}
    return found


def _derived(reaction: Reaction, events: Sequence[Recorded]) -> list[dict[str, Any]]:
    ended = ended_run(events)
    if ended is None:
        return []
    ending = ended.ending.event
    user, agent = (_named(ended.run, ending, name) for name in ("user", "agent"))
    derived = []
    for level, data in experience_of(ended, user=user, agent=agent).items():
        names = {"user": user, "agent": agent} if level == "user" else {"agent": agent}
        derived.append(reaction.derive("experience.recorded", data, part=f"{level}/{DERIVER_VERSION}", **names))
    return [{**event, "time": ending.time} for event in derived]


def _named(run: Trajectory, ending: Event, name: str) -> str:
    """A name of the envelope: of the run's ending, else of its beginning."""
    return str(getattr(ending, name) or (getattr(run.beginning, name) if run.beginning else ""))


HINDSIGHT = Reactor(
    name="hindsight",
    handles=frozenset(("run.terminated", "feedback.given")),
    react=look_back,
    from_start=True,
    version=DERIVER_VERSION,
)
