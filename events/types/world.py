"""What stands in the world around the run: artifacts, blockers, approvals, checkpoints, feedback."""

from __future__ import annotations

from typing import Literal

from events.types.base import Count, JsonValue, NonEmpty, Payload


class ArtifactCreated(Payload, frozen=True, kw_only=True):
    """The run made or changed something that outlives it."""

    name: NonEmpty
    uri: str = ""
    kind: str = ""
    digest: str = ""
    size_bytes: Count | None = None
    step: str = ""


class BlockerRaised(Payload, frozen=True, kw_only=True):
    """The task cannot go on until this is cleared."""

    blocker: NonEmpty
    description: str = ""


class BlockerCleared(Payload, frozen=True, kw_only=True):
    """The blocker is gone."""

    blocker: NonEmpty
    detail: str = ""


class ApprovalRequested(Payload, frozen=True, kw_only=True):
    """The task waits for a person. ``versions`` names the prompt, model, tools and plan it was asked under."""

    approval: NonEmpty
    action: str = ""
    arguments: JsonValue = None
    versions: dict[str, str] = {}


class ApprovalResolved(Payload, frozen=True, kw_only=True):
    """A person answered."""

    approval: NonEmpty
    approved: bool
    by: str = ""
    detail: str = ""


class CheckpointSaved(Payload, frozen=True, kw_only=True):
    """Opaque state of the agent's own runtime; it comes back as it was."""

    data: JsonValue
    checkpoint: str = ""
    data_version: str = ""
    milestone: bool = False


class WorkbenchUpdated(Payload, frozen=True, kw_only=True):
    """What the run has at hand changed. A section that is given takes the former one's place; ``add``: goes behind it.

    The workbench is short-lived and bounded: what must outlast the work is a note, a decision or an artifact.
    """

    observations: list[JsonValue] | None = None
    preconditions: list[JsonValue] | None = None
    requirements: list[JsonValue] | None = None
    to_retry: list[JsonValue] | None = None
    add: bool = False


class FeedbackGiven(Payload, frozen=True, kw_only=True):
    """Somebody judged the run or a part of it. ``score`` is higher for better, on the giver's own scale."""

    text: str = ""
    score: float | None = None
    target_kind: Literal["run", "step", "call", "message", ""] = ""
    target: str = ""
    by: str = ""
