"""Plans and their steps."""

from __future__ import annotations

from typing import Literal

import msgspec

from events.types.base import JsonValue, NonEmpty, Payload

StepStatus = Literal["planned", "in_progress", "completed", "failed", "skipped"]


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a plan, in its place in the list."""

    id: NonEmpty
    title: str = ""
    status: StepStatus = "planned"


class PlanUpdated(Payload, frozen=True, kw_only=True):
    """The whole plan as it stands now; it replaces the former one. A step that began keeps what it did."""

    steps: list[PlanStep]
    reason: str = ""


class StepStarted(Payload, frozen=True, kw_only=True):
    """Work on a step began."""

    step: NonEmpty
    title: str = ""


class StepCompleted(Payload, frozen=True, kw_only=True):
    """A step is done and is not repeated on resume."""

    step: NonEmpty
    title: str = ""
    summary: str = ""
    result: JsonValue = None


class StepFailed(Payload, frozen=True, kw_only=True):
    """A step failed."""

    step: NonEmpty
    title: str = ""
    error: str = ""


class StepSkipped(Payload, frozen=True, kw_only=True):
    """A step will not be done."""

    step: NonEmpty
    title: str = ""
    reason: str = ""
