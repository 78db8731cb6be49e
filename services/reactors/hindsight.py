"""Hindsight: what a run was worth learning from, when it has ended (DESIGN 6).

``run.terminated`` → ``experience.recorded`` twice: the whole sheet to the user's scope, value-free counts to the
agent's, so that no user's words travel. The ids hold the deriver's version: a newer one derives again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.reactors.experience import DERIVER_VERSION, counts_of, nodes_of, sheet_of
from services.reactors.reactor import Later, Reaction, Reactor
from services.reactors.trajectory import trajectory


async def look_back(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Derive the experience of the run that the source event ended."""
    run = trajectory(reaction.so_far(await reaction.run_events()))
    if run.ending is None or run.ending.position != reaction.source.position:
        return []
    source, nodes = reaction.event, nodes_of(run)
    common = {"run": source.run, "deriver_version": DERIVER_VERSION, "counts": msgspec.to_builtins(counts_of(nodes))}
    derived = []
    if source.user:
        whole = {**common, "scope": "user", "nodes": msgspec.to_builtins(nodes), "sheet": sheet_of(run, nodes)}
        part = f"user/{DERIVER_VERSION}"
        derived.append(reaction.derive("experience.recorded", whole, part=part, user=source.user, agent=source.agent))
    if source.agent and common["counts"]:
        part = f"agent/{DERIVER_VERSION}"
        derived.append(
            reaction.derive("experience.recorded", {**common, "scope": "agent"}, part=part, agent=source.agent)
        )
    return derived


HINDSIGHT = Reactor(name="hindsight", handles=frozenset(("run.terminated",)), react=look_back)
