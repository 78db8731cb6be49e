"""Experience, and the beliefs that grow from it."""

from __future__ import annotations

from typing import Literal

import msgspec

from events.types.base import JsonValue, Level, NonEmpty, Number, Payload, Summand, Unit

NodeLabel = Literal["success", "deviated_success", "recoverable_failure", "fatal_failure", "unfinished"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled node of a trajectory: a step, a call, the plan or the result."""

    node: NonEmpty
    kind: Literal["plan", "step", "call", "result"]
    label: NodeLabel
    tool: str = ""
    cause: str = ""


class ToolCount(msgspec.Struct, frozen=True, kw_only=True):
    """Value-free statistics of one tool in one run: counts alone, no user's words."""

    tool: NonEmpty
    label: NodeLabel
    count: Summand


class ExperienceRecorded(Payload, frozen=True, kw_only=True):
    """What a run was worth learning from. The fold keeps the highest ``deriver_version`` of each run.

    At the user's level it holds the whole sheet; at the agent's only ``counts``.
    """

    run: NonEmpty
    deriver_version: Number
    scope: Level
    nodes: list[Node] = []
    counts: list[ToolCount] = []
    sheet: dict[str, JsonValue] = {}


class BeliefProposed(Payload, frozen=True, kw_only=True):
    """Something to do next time, on trial.

    ``confidence`` is its prior, 0..1. ``limits`` say how far it reaches (scope limits, in words or names of the proposer's
    own). ``because`` are ids of the events that made somebody propose it: shown, not counted. ``elsewhere`` are documents of
    evidence from another place (a memory pack): shown in the chain, not counted, since nothing here can check them.
    """

    belief: NonEmpty
    kind: Literal["tool_reliability", "plan_pattern", "user_preference", "learning"]
    statement: str = ""
    trigger: dict[str, JsonValue] = {}
    tendency: str = ""
    confidence: Unit = 0.5
    limits: dict[str, JsonValue] = {}
    because: list[str] = []
    elsewhere: list[JsonValue] = []
    scope: Level | None = None


class BeliefVerified(Payload, frozen=True, kw_only=True):
    """One piece of evidence for or against a belief.

    ``source`` is the occasion it comes from, such as a session or a message: one occasion counts once for a belief, as its
    latest event says; empty: each event is an occasion of its own. ``because`` are ids of the events that speak.
    """

    belief: NonEmpty
    supports: bool
    source: str = ""
    because: list[str] = []
    by: str = ""
    detail: str = ""
    scope: Level | None = None


class BeliefRetracted(Payload, frozen=True, kw_only=True):
    """The belief no longer holds."""

    belief: NonEmpty
    reason: str = ""
    scope: Level | None = None
