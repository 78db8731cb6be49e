"""The extractor: proposes memories, and decides nothing (DESIGN 6).

    message.added (of a user)   what the user says of themselves, by rules; in a run that another run began nobody does
    settlement.recorded         the candidates and learnings of a run's notes; reflections stay with the run
    experience.recorded         (of an agent) a tool that failed in most of the runs that used it, three or more

Whose memory a proposal becomes follows from its kind and the run, never from what it says. What cannot be proposed, a
malformed candidate or one of nobody, is rejected here, with its reason: nothing is lost without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from events.archive.reader import Archive
from events.event import START, Event, Position
from events.keys import level_of
from events.types.belief import ExperienceRecorded
from events.types.memory import MemoryProposed
from events.types.settlement import SettlementRecorded
from events.types.thought import MessageAdded
from services.curation.extract import proposals_of
from services.reactors.derived import derived_id
from services.reactors.person import person_of
from services.reactors.reactor import PAGE, Later, Reaction, Reactor, read_recorded

LEAST_RUNS = 3
"""Runs in which a tool must have failed before an agent learns from it."""

_NAMES = ("user", "agent", "session", "task", "run")
_FAILED = frozenset(("recoverable_failure", "fatal_failure"))


async def extract(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Propose what the source says."""
    match reaction.recorded.payload:
        case MessageAdded(role="user") as payload if reaction.event.user:
            said = proposals_of(payload.content)
            if said and not await person_of(reaction):
                return []
            return [_proposal(reaction, data, f"said/{number}") for number, data in enumerate(said)]
        case SettlementRecorded() as payload:
            return [*_settled(reaction, payload)]
        case ExperienceRecorded() as payload if reaction.event.key.startswith("agent/"):
            tools = await _failing(reaction, payload)
            return [_proposal(reaction, _lesson(tool), f"tool/{tool}") for tool in tools]
        case _:
            return []


def _settled(reaction: Reaction, payload: SettlementRecorded) -> Iterator[dict[str, Any]]:
    for what, items in (("memory", payload.memories), ("learning", payload.learnings)):
        for number, item in enumerate(items):
            part = f"{what}/{payload.version}/{number}"
            data = {"content": item} if isinstance(item, str) else dict(item) if isinstance(item, dict) else {}
            data = {**data, "source": "settlement", "infer": True} | (
                {"kind": "learning"} if what == "learning" else {}
            )
            yield _proposal(reaction, data, part)


def _proposal(reaction: Reaction, data: dict[str, Any], part: str) -> dict[str, Any]:
    """A proposal, or its rejection where it cannot be one."""
    event = reaction.event
    data.pop("scope", None)  # whose it is follows from its kind
    try:
        proposed = msgspec.convert(data, MemoryProposed)
    except msgspec.ValidationError as error:
        return _rejection(reaction, part, "malformed", str(error))
    level = level_of(proposed) or "user"
    if not proposed.content.strip():
        return _rejection(reaction, part, "empty", "it says nothing")
    if level != "org" and not getattr(event, level):
        return _rejection(reaction, part, "nobody", f"its kind belongs to the {level}, and the run names none")
    plain = msgspec.to_builtins(proposed)
    return reaction.derive("memory.proposed", {**plain, "scope": level}, part=part, **_named(event))


def _rejection(reaction: Reaction, part: str, reason: str, detail: str) -> dict[str, Any]:
    event = reaction.event
    scope = "user" if event.user else "agent" if event.agent else "org"
    proposal = derived_id(reaction.reactor, event, part)
    data = {"proposal": proposal, "reason": reason, "detail": detail, "scope": scope}
    return reaction.derive("memory.rejected", data, part=f"{part}/rejected", **_named(event))


def _named(event: Event) -> dict[str, str]:
    return {name: getattr(event, name) for name in _NAMES}


def _lesson(tool: str) -> dict[str, Any]:
    text = (
        f"The tool {tool} failed in most of the runs that used it: check its arguments before a call, "
        "and have another way when it fails"
    )
    return {"content": text, "kind": "learning", "entity": tool, "attribute": "reliability", "source": "experience"}


async def _failing(reaction: Reaction, payload: ExperienceRecorded) -> list[str]:
    """Tools that, with this run, have failed in so many runs for the first time, and in most that used them."""
    here = {count.tool for count in payload.counts if count.label in _FAILED and count.count}
    if not here:
        return []
    runs = await _runs(reaction.archive, reaction.event, reaction.source.position)
    found = []
    for tool in sorted(here):
        used = [labels for of_run in runs.values() if (labels := of_run.get(tool))]
        failed = sum(bool(labels & _FAILED) for labels in used)
        if failed == LEAST_RUNS and 2 * failed > len(used):
            found.append(tool)
    return found


async def _runs(archive: Archive, event: Event, upto: Position) -> dict[str, dict[str, set[str]]]:
    """Run -> tool -> how its calls ended, of the agent's experience up to a position."""
    runs: dict[str, dict[str, set[str]]] = {}
    after = START
    while page := await archive.key_events(event.org, event.key, after, PAGE):
        after = page[-1].position
        for archived in page:
            if archived.type != "experience.recorded" or archived.position > upto:
                continue
            recorded = read_recorded(archived)
            if recorded is not None:
                of_run = runs[recorded.payload.run] = {}
                for count in recorded.payload.counts:
                    of_run.setdefault(count.tool, set()).add(count.label)
        if len(page) < PAGE:
            break
    return runs


EXTRACTOR = Reactor(
    name="extractor",
    handles=frozenset(("message.added", "settlement.recorded", "experience.recorded")),
    react=extract,
)
