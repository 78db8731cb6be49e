"""Runs: one attempt at a task, from its start to its termination."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from events.types.base import JsonValue, Number, Payload, Seconds

Place = Annotated[str, msgspec.Meta(pattern=r"^(\d{1,15}-(\d{1,18}|-1))?$")]
"""A log position, as it is written, -1 before the first of an epoch; empty: none."""

TerminationReason = Literal[
    "end_turn", "interrupt", "cycle_detected", "error_streak", "budget_exhausted", "timeout", "panic_stop", "lost"
]
Outcome = Literal["completed", "blocked", "failed", "interrupted"]
Mode = Literal["default", "precise_planning", "information_gathering", "creative"]


class Addressed(msgspec.Struct, frozen=True, kw_only=True):
    """Content by its address: the digest always, the content itself the first time (and whenever it is at hand)."""

    digest: str
    content: JsonValue = None


class RunStarted(Payload, frozen=True, kw_only=True):
    """A run of a task began. ``attempt`` n is accepted only after n-1 (DESIGN 3, one attempt at a time)."""

    goal: str = ""
    attempt: Number = 1
    mode: Mode = "default"
    model: str = ""
    parent_run: str = ""
    budget: dict[str, JsonValue] | None = None
    settles: Literal["agent", "backend"] = "backend"
    settle_deadline_s: Seconds | None = None
    system_prompt: Addressed | None = None
    tools: Addressed | None = None
    plan: Addressed | None = None


class AttemptOfRun(msgspec.Struct, frozen=True):
    """What the log itself reads of a ``run.started``, whatever its version."""

    attempt: Number = 1


class GivenUp(msgspec.Struct, frozen=True):
    """What the log itself reads of the end of a run that its watchdog gave up, whatever its version."""

    seen_to: Place = ""


class RunHeartbeat(Payload, frozen=True, kw_only=True):
    """The run is alive though it publishes nothing else."""

    detail: str = ""


class RunTerminated(Payload, frozen=True, kw_only=True):
    """The run ended. The first terminal event of a run wins; only ``lost`` is provisional.

    ``result`` is what the run hands on: a sub-agent its parent a distilled result, not its history. ``seen_to``, of a
    lost one: the position up to which its partition was looked through for a sign of its life.
    """

    reason: TerminationReason
    outcome: Outcome | None = None
    detail: str = ""
    result: JsonValue = None
    seen_to: Place = ""
