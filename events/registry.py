"""Every event type: its name, payload model, version, partition key rule and upcasters. The one place to add one.

To add a type: write its payload class in ``events/types/`` and one line in ``_TYPES``. To change a payload: raise its
version here and add ``upcast`` from the version before; stored events are never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec
import orjson
from msgspec.structs import fields

from events.errors import NewerVersion, Poison
from events.event import Event
from events.triggers import parse
from events.types import belief, memory, plan, run, settlement, system, thought, thread, tools, world
from events.types.base import Payload

KeyedBy = Literal["task", "settlement", "feedback", "scope", "discarded", "partition"]
"""Which rule of ``events.keys`` gives the partition key."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns data of version n into data of version n+1. Pure; it may change its argument."""


@dataclass(frozen=True)
class EventType:
    """One event type. ``upcast[n]`` lifts data from version n to n+1. ``check`` is what the door asks besides of a
    payload, for new events alone: it raises Refused.

    ``log_reads`` is what the log itself reads of the data: every version must have it in this form, newer ones too.

    ``outside``: told of a run by others than its worker, so that it is no sign of the run's life, and is taken after a
    newer attempt has begun, too. ``instead``: what a publisher is to do who would publish this, which the backend alone
    decides; empty: anybody may publish it.
    """

    name: str
    payload: type[Payload]
    keyed_by: KeyedBy
    version: int = 1
    upcast: Mapping[int, Upcaster] = field(default_factory=dict)
    log_reads: type[msgspec.Struct] | None = None
    check: Callable[[Any], object] | None = None
    outside: bool = False
    instead: str = ""


_CHANGE = "change memories by /v1/memories, or `refold memory`"
_DISCARD = "use `refold deadletters discard`"
_PROPOSE = "propose it as memory.proposed"

_TYPES = (
    EventType("run.started", run.RunStarted, "task", log_reads=run.AttemptOfRun),
    EventType("run.heartbeat", run.RunHeartbeat, "task"),
    EventType("run.terminated", run.RunTerminated, "task"),
    EventType("plan.updated", plan.PlanUpdated, "task"),
    EventType("step.started", plan.StepStarted, "task"),
    EventType("step.completed", plan.StepCompleted, "task"),
    EventType("step.failed", plan.StepFailed, "task"),
    EventType("step.skipped", plan.StepSkipped, "task"),
    EventType("tool.called", tools.ToolCalled, "task"),
    EventType("tool.returned", tools.ToolReturned, "task", log_reads=tools.LateResult),
    EventType("tool.failed", tools.ToolFailed, "task", log_reads=tools.LateResult),
    EventType("message.added", thought.MessageAdded, "task"),
    EventType("decision.made", thought.DecisionMade, "task"),
    EventType("note.written", thought.NoteWritten, "task"),
    EventType("model.responded", thought.ModelResponded, "task"),
    EventType("card.summarized", thought.CardSummarized, "task", outside=True),
    EventType("conversation.read", thought.ConversationRead, "task", outside=True),
    EventType("card.invalidated", thought.CardInvalidated, "task", outside=True),
    EventType("card.restored", thought.CardRestored, "task", outside=True),
    EventType("artifact.created", world.ArtifactCreated, "task"),
    EventType("blocker.raised", world.BlockerRaised, "task"),
    EventType("blocker.cleared", world.BlockerCleared, "task"),
    EventType("approval.requested", world.ApprovalRequested, "task"),
    EventType("approval.resolved", world.ApprovalResolved, "task", outside=True),
    EventType("checkpoint.saved", world.CheckpointSaved, "task"),
    EventType("workbench.updated", world.WorkbenchUpdated, "task"),
    EventType("feedback.given", world.FeedbackGiven, "feedback", outside=True),
    EventType("settlement.attempted", settlement.SettlementAttempted, "settlement", outside=True),
    EventType("settlement.requested", settlement.SettlementRequested, "settlement", outside=True),
    EventType("settlement.recorded", settlement.SettlementRecorded, "settlement", outside=True),
    EventType("settlement.degraded", settlement.SettlementDegraded, "settlement", outside=True),
    EventType("experience.recorded", belief.ExperienceRecorded, "scope"),
    EventType("belief.proposed", belief.BeliefProposed, "scope", check=lambda proposed: parse(proposed.trigger)),
    EventType("belief.verified", belief.BeliefVerified, "scope"),
    EventType("belief.retracted", belief.BeliefRetracted, "scope"),
    EventType("belief.reviewed", belief.BeliefReviewed, "scope", instead="tell evidence as belief.verified"),
    EventType("memory.proposed", memory.MemoryProposed, "scope"),
    EventType("memory.admitted", memory.MemoryAdmitted, "scope", instead=_PROPOSE),
    EventType("memory.rejected", memory.MemoryRejected, "scope", instead=_PROPOSE),
    EventType("memory.superseded", memory.MemorySuperseded, "scope", instead=_PROPOSE),
    EventType("memory.edited", memory.MemoryEdited, "scope", instead=_CHANGE),
    EventType("memory.invalidated", memory.MemoryInvalidated, "scope", instead=_CHANGE),
    EventType("memory.restored", memory.MemoryRestored, "scope", instead=_CHANGE),
    EventType("memory.deleted", memory.MemoryDeleted, "scope", instead=_CHANGE),
    EventType("memory.consolidated", memory.MemoryConsolidated, "scope", instead=_PROPOSE),
    EventType("memory.recalled", memory.MemoryRecalled, "scope"),
    EventType("thread.advanced", thread.ThreadAdvanced, "task"),
    EventType("thread.written", thread.ThreadWritten, "task"),
    EventType("thread.pruned", thread.ThreadPruned, "task"),
    EventType("thread.chunked", thread.ThreadChunked, "task"),
    EventType("thread.assembled", thread.ThreadAssembled, "task"),
    EventType("item.updated", thread.ItemUpdated, "task"),
    EventType("item.deleted", thread.ItemDeleted, "task"),
    EventType("context.assembled", system.ContextAssembled, "task", outside=True),
    EventType("pack.imported", system.PackImported, "scope"),
    EventType("deadletter.discarded", system.DeadletterDiscarded, "discarded", outside=True, instead=_DISCARD),
    EventType("scope.erased", system.ScopeErased, "partition", instead="use `refold erase`"),
)

EVENT_TYPES: Mapping[str, EventType] = {t.name: t for t in _TYPES}

FROM_OUTSIDE = frozenset(t.name for t in _TYPES if t.outside)
"""Types that others than a run's worker tell of it."""

ONLY_HERE = frozenset(t.name for t in _TYPES if t.instead)
"""Types that the backend alone publishes: decisions of the gate into memory and changes behind it, reviews, discards,
erasures. All else that is derived can be told by who may tell what an agent does; these would pass no check.
"""


_LONGEST = 2 * max(map(len, EVENT_TYPES))


@lru_cache(maxsize=1024)
def note_on(type: str) -> str:
    """What to tell the publisher of an event: empty for a known type, else that this version does not know it.

    >>> note_on("run.startd")
    'of a type this version does not know: run.startd (is it run.started?); stored and ignored by read models'
    """
    if type in EVENT_TYPES:
        return ""
    near = "".join(f" (is it {name}?)" for name in get_close_matches(type[:_LONGEST], EVENT_TYPES, 1, 0.8))
    return f"of a type this version does not know: {type}{near}; stored and ignored by read models"


def decode_data(kind: EventType, version: int, data: str | bytes) -> Payload:
    """Decode and upcast the data of one event into the type's current payload model.

    Raises NewerVersion when the data are newer than this code, Poison when they do not fit the model, or a newer one
    lacks what the log must read.
    """
    if version > kind.version:
        if kind.log_reads is not None:
            _check_newer(kind, version, data)
        raise NewerVersion(f"{kind.name} v{version} is newer than this code knows (v{kind.version})")
    try:
        if version == kind.version:
            return msgspec.json.decode(data, type=kind.payload)
        raw = orjson.loads(data)
        for step in range(version, kind.version):
            raw = kind.upcast[step](raw)
        return msgspec.convert(raw, kind.payload)
    except (msgspec.DecodeError, msgspec.ValidationError, orjson.JSONDecodeError) as error:
        raise Poison(f"{kind.name} v{version}: {error}{_allowed(kind.payload, str(error))}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Poison(f"{kind.name} v{version} could not be upcast to v{kind.version}: {error!r}") from error


def _allowed(payload: type[Payload], message: str) -> str:
    """What a member may be instead, where msgspec says that its value is none of a few; else empty."""
    if "enum value" not in message:
        return ""
    place = message.rpartition("`$.")[2].rstrip("`")
    kinds = [one.type for one in fields(payload) if one.encode_name == place]
    found = [value for kind in kinds for part in (kind, *get_args(kind)) for value in get_args(part)]
    values = [value for value in found if isinstance(value, str)]
    return f": one of {', '.join(values)}" if values else ""


def _check_newer(kind: EventType, version: int, data: str | bytes) -> None:
    try:
        msgspec.json.decode(data, type=kind.log_reads)
    except msgspec.ValidationError as error:
        raise Poison(f"{kind.name} v{version}, which the log must read in any version: {error}") from error


def decode_payload(event: Event) -> Payload | None:
    """The payload of an event, or None for a type this code does not know. Raises as ``decode_data``."""
    kind = EVENT_TYPES.get(event.type)
    return None if kind is None else decode_data(kind, event.schemaversion, event.data)
