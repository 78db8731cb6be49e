"""Settlements: the notes that every run leaves at its end, however it ended."""

from __future__ import annotations

from typing import Literal

import msgspec

from events.types.base import Cost, Count, JsonValue, Number, Payload, Summand
from events.types.run import TerminationReason

DegradedReason = Literal[
    "no_model", "timeout", "unreachable", "invalid_output", "refused", "rate_limited", "context_too_long", "budget"
]


class CompletedAction(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done: where, and in one line what."""

    path: str = ""
    summary: str = ""


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the next context of the session needs to know of the past; its only history source."""

    pending_task: str = ""
    goal: str = ""
    current_phase: str = ""
    completed_actions: list[CompletedAction] = []
    key_decisions: list[str] = []
    rejected_paths: list[str] = []
    open_questions: list[str] = []
    plan_snapshot: list[JsonValue] = []
    action_items: list[str] = []


class SettlementAttempted(Payload, frozen=True, kw_only=True):
    """One call to the run's own model; ``failed`` is why its answer is no settlement, ``error`` in words.

    ``gave_up``: a run that settles itself tries no more; what its events prove is all that is kept of it.
    """

    attempt: Number
    by: Literal["agent", "backend"] = "backend"
    model: str = ""
    failed: DegradedReason | None = None
    error: str = ""
    gave_up: bool = False
    tokens_in: Summand = 0
    tokens_out: Summand = 0
    cost: Cost = 0.0
    latency_ms: float | None = None


class SettlementRequested(Payload, frozen=True, kw_only=True):
    """Somebody wants an ended run settled again: the settlement will have this ``version``."""

    version: Number
    by: str = ""
    detail: str = ""


class SettlementRecorded(Payload, frozen=True, kw_only=True):
    """A run was settled. A settlement made again on purpose has a higher ``version``."""

    version: Number = 1
    by: Literal["agent", "backend"] = "agent"
    reason: TerminationReason | None = None
    interrupted: bool = False
    session_state: SessionState
    memories: list[JsonValue] = []
    reflections: list[str] = []
    learnings: list[JsonValue] = []
    model: str = ""
    attempts: Count = 0
    tokens_in: Summand = 0
    tokens_out: Summand = 0


class SettlementDegraded(Payload, frozen=True, kw_only=True):
    """No model's notes could be had: mechanical evidence instead, never a SessionState."""

    version: Number = 1
    degraded: DegradedReason
    reason: TerminationReason | None = None
    interrupted: bool = False
    evidence: list[str] = []
    detail: str = ""
    attempts: Count = 0
