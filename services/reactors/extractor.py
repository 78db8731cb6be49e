"""The extractor: proposes memories, and decides nothing (DESIGN 6).

    message.added (of a user)   what the user says of themselves, by rules, or ``conversation.read`` where a model is
                                named for that (``reading``); in a run that another run began nobody does
    conversation.read           what that model found, or what rules do where it found no answer
    settlement.recorded         the candidates and learnings of a run's notes; reflections stay with the run
    experience.recorded         (of an agent) a tool that failed in most of the runs that used it, three or more

Whose memory a proposal becomes follows from its kind and the run, never from what it says. What cannot be proposed, a
malformed candidate or one of nobody, is rejected here, with its reason: nothing is lost without one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from events.archive.reader import Archive
from events.event import START, Event, Position
from events.keys import level_of
from events.types.belief import ExperienceRecorded
from events.types.memory import MemoryProposed
from events.types.settlement import SettlementRecorded
from events.types.thought import ConversationRead, MessageAdded
from services.curation.extract import proposals_of
from services.models.failure import ModelFailed
from services.reactors.derived import derived_id
from services.reactors.person import person_of
from services.reactors.reactor import PAGE, Later, Reaction, Reactor, read_recorded
from services.reactors.reading import read_by_model, to_read

LEAST_RUNS = 3
"""Runs in which a tool must have failed before an agent learns from it."""

WAIT_S = 5.0
"""Pause after a call that was not answered, where the endpoint does not say how long."""

_log = logging.getLogger("refold.reactors")
_NAMES = ("user", "agent", "session", "task", "run")
_FAILED = frozenset(("recoverable_failure", "fatal_failure"))


async def extract(reaction: Reaction) -> Sequence[dict[str, Any]] | Later:
    """Propose what the source says."""
    match reaction.recorded.payload:
        case MessageAdded(role="user") as payload if reaction.event.user:
            return await _said(reaction, payload)
        case ConversationRead() as payload:
            found = payload.found if payload.understood else await _by_rules(reaction, payload.message)
            return [_proposal(reaction, _conversation(data), f"said/{number}") for number, data in enumerate(found)]
        case SettlementRecorded() as payload:
            return [*_settled(reaction, payload)]
        case ExperienceRecorded() as payload if reaction.event.key.startswith("agent/"):
            tools = await _failing(reaction, payload)
            return [_proposal(reaction, _lesson(tool), f"tool/{tool}") for tool in tools]
        case _:
            return []


async def _said(reaction: Reaction, payload: MessageAdded) -> Sequence[dict[str, Any]] | Later:
    """What rules find in a message; with a model, the event that says what that found."""
    outside = reaction.outside
    text = to_read(payload.content) if outside.extract_model and reaction.event.run else ""
    said = [] if text else proposals_of(payload.content)
    if not (text or said) or not await person_of(reaction):
        return []
    if text:
        try:
            read = await read_by_model(outside.models, reaction.event.org, outside.extract_model, text)
        except ModelFailed as failure:
            passes = failure.reason in ("unreachable", "timeout", "rate_limited")
            if passes and reaction.age_s() < outside.settle_patience_s:
                return Later(failure.retry_s or WAIT_S)
            _log.warning("rules read what a user said, for no model did: %s", failure)
            read = {"model": outside.extract_model, "understood": False}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")  # the day that it is paid on
        data = {**read, "message": reaction.event.id}
        return [{**reaction.derive("conversation.read", data, part="read", **_named(reaction.event)), "time": now}]
    return [_proposal(reaction, data, f"said/{number}") for number, data in enumerate(said)]


async def _by_rules(reaction: Reaction, message: str) -> list[dict[str, Any]]:
    """What rules find in a message of the run."""
    for one in await reaction.run_events():
        if one.event.id == message and isinstance(one.payload, MessageAdded):
            return proposals_of(one.payload.content)
    return []


def _conversation(data: Any) -> dict[str, Any]:
    return {**data, "source": "conversation", "infer": True} if isinstance(data, dict) else {}


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
    """Run -> tool -> how its calls ended, of the agent's experience up to a position: the last judgement of each run,
    by the deriver's version and the revision, whatever order they came in."""
    runs: dict[str, dict[str, set[str]]] = {}
    last: dict[str, tuple[int, int]] = {}
    after = START
    while page := await archive.key_events(event.org, event.key, after, PAGE):
        after = page[-1].position
        for archived in page:
            if archived.type != "experience.recorded" or archived.position > upto:
                continue
            recorded = read_recorded(archived)
            payload = recorded.payload if recorded is not None else None
            if payload is None or (rank := (payload.deriver_version, payload.revision)) < last.get(payload.run, rank):
                continue
            last[payload.run], of_run = rank, runs.setdefault(payload.run, {})
            of_run.clear()
            for count in payload.counts:
                of_run.setdefault(count.tool, set()).add(count.label)
        if len(page) < PAGE:
            break
    return runs


EXTRACTOR = Reactor(
    name="extractor",
    handles=frozenset(("message.added", "conversation.read", "settlement.recorded", "experience.recorded")),
    react=extract,
)
