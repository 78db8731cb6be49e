"""Experience, and the beliefs that grow from it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec

from events.types.base import JsonValue, Level, NonEmpty, Number, Payload, Summand, Unit

NodeLabel = Literal["success", "deviated_success", "recoverable_failure", "fatal_failure", "unfinished"]


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is put down to, and why: a word of a closed list that names no value
    (``services.reactors.attribution`` tells what each means)."""

    to: Literal["plan", "tool", "luck"]
    reason: NonEmpty


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One labelled node of a trajectory: a step, a call, the plan or the result.

    ``evidence`` is False for one that speaks for nothing: it is unfinished, was lucky, or was not its own doing.
    ``pattern`` is the causal pattern of a failure, ``context`` the fingerprint of the situation it happened in; both
    name no value, and ``services.reactors.causes`` tells how they are made. ``event`` is the id of the event that gave
    the node its label: the way back to the original.
    """

    node: NonEmpty
    kind: Literal["plan", "step", "call", "result"]
    label: NodeLabel
    tool: str = ""
    cause: str = ""
    attributed: list[Attribution] = []
    evidence: bool = True
    pattern: str = ""
    context: str = ""
    event: str = ""


class ToolCount(msgspec.Struct, frozen=True, kw_only=True):
    """Value-free statistics of one tool in one run: counts alone, no user's words.

    ``contexts`` are the fingerprints of the situations in which it ended so: a success speaks against a notice only
    where that was met, as far as both say where.
    """

    tool: NonEmpty
    label: NodeLabel
    count: Summand
    contexts: list[str] = []


class FatalPattern(msgspec.Struct, frozen=True, kw_only=True):
    """What a run died of, without a value: so often the tool failed fatally by this pattern in this context.

    ``pattern`` is a kind of cause of a closed list and a digest, such as ``timeout~0a1b2c3d``, never words of an error:
    equal causes have equal ones (``services.reactors.causes.value_free``).
    """

    tool: str = ""
    pattern: str = ""
    context: str = ""
    count: Summand = 1


LAST_WORD = 2**53
"""The deriver version after which none comes: an experience of it that says nothing takes a run back for good."""


class ExperienceRecorded(Payload, frozen=True, kw_only=True):
    """What a run was worth learning from. Of each run the fold keeps the one that is last by
    ``(deriver_version, revision)``, whatever order they arrive in.

    ``revision`` counts what the run was judged by so far, its endings and distinct feedbacks: feedback that comes after
    the end gives the next revision. The event's time is that of the run's ending, in every revision.

    At the user's level it holds the whole sheet; at the agent's only ``counts`` and what else names no value: ``path``
    (the tools in their order, repeated ones once), its label (``unfinished`` where it speaks for nothing), whether and
    when the run left its plan, ``fatal``, and ``owner`` (``owner_of`` the user), by which an erasure finds it.
    """

    run: NonEmpty
    deriver_version: Number
    scope: Level
    revision: Number = 1
    nodes: list[Node] = []
    counts: list[ToolCount] = []
    sheet: dict[str, JsonValue] = {}
    deviation: Literal["none", "before_failure", "after_failure"] = "none"
    path: str = ""
    path_label: NodeLabel = "unfinished"
    fatal: list[FatalPattern] = []
    owner: str = ""


def owner_of(org: str, user: str) -> str:
    """A user under a name that says nothing: 16 hexadecimal digits; empty for nobody."""
    return blake2b(f"{org}\x1f{user}".encode(), digest_size=8).hexdigest() if user else ""


class BeliefProposed(Payload, frozen=True, kw_only=True):
    """Something to do next time, on trial.

    ``confidence`` is its prior, 0..1. ``limits`` say how far it reaches (scope limits, in words or names of the
    proposer's own). ``because`` are ids of the events that made somebody propose it: shown, not counted. ``elsewhere``
    are documents of evidence from another place (a memory pack): shown, not counted, since nothing here can check them.
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

    ``source`` is the occasion it comes from, such as a session or a message: one occasion counts once for a belief, as
    its latest event says; empty: each event is an occasion of its own. ``because`` are ids of the events that speak.
    ``withdrawn``: the occasion says nothing any more, whatever it said before.
    """

    belief: NonEmpty
    supports: bool
    withdrawn: bool = False
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


class BeliefReviewed(Payload, frozen=True, kw_only=True):
    """The calibrator looked at a belief again, as of the moment ``slot``. It is no evidence: no count changes by it.

    ``holds``: what is known speaks for it: it counts as verified at the event's time. ``doubtful``: the latest evidence
    speaks against it. ``untouched``: nothing new was known. ``by`` is ``evidence`` or ``model:<name>``; tokens and
    ``latency_ms`` are the model's.
    """

    belief: NonEmpty
    slot: NonEmpty
    verdict: Literal["holds", "doubtful", "untouched"]
    confidence: Unit
    by: str = "evidence"
    detail: str = ""
    because: list[str] = []
    tokens_in: Summand = 0
    tokens_out: Summand = 0
    latency_ms: float = 0.0
    scope: Level | None = None
