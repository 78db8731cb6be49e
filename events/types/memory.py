"""Long-term memory: what was proposed, what became of it, and who used it.

``based_on`` of a decision is the last position (``<epoch>-<n>``) of its scope that it knew: where memories of the scope
have changed since, the fold takes it for stale, and it is made again.
"""

from __future__ import annotations

from typing import Literal

from events.types.base import Count, JsonValue, Level, NonEmpty, Payload, Seconds, Unit

MemoryKind = Literal["preference", "fact", "correction", "learning", "procedure", "convention"]
MemoryType = Literal["semantic", "episodic", "procedural"]


MemorySource = Literal["agent", "person", "settlement", "conversation", "experience", "pack"]
"""Who brought a memory up: an agent by itself, a person, a run's settlement, what a user said, counted experience."""

Trust = Literal["stated", "data"]
"""``stated``: by those whose memory it is. ``data``: reads like an instruction: contexts fence it."""


class MemoryProposed(Payload, frozen=True, kw_only=True):
    """A candidate for long-term memory; the curator decides.

    ``infer=False`` asks to keep it verbatim: it is checked for secrets and copies only; from a pack, for what
    contradicts it, too. ``trust``: what was data stays data. ``corrects`` names the value, or the memory, that it takes
    the place of.
    """

    content: NonEmpty
    kind: MemoryKind = "fact"
    memory_type: MemoryType = "semantic"
    entity: str = ""
    attribute: str = ""
    confidence: Unit | None = None
    tags: list[str] = []
    ttl_s: Seconds | None = None
    scope: Level | None = None
    infer: bool = True
    source: MemorySource = "agent"
    trust: Trust = "stated"
    corrects: str = ""


class MemoryAdmitted(Payload, frozen=True, kw_only=True):
    """A proposal entered memory."""

    memory: NonEmpty
    proposal: str = ""
    content: NonEmpty
    kind: MemoryKind = "fact"
    memory_type: MemoryType = "semantic"
    entity: str = ""
    attribute: str = ""
    confidence: Unit | None = None
    tags: list[str] = []
    ttl_s: Seconds | None = None
    scope: Level | None = None
    score: float | None = None
    based_on: str = ""
    source: MemorySource = "agent"
    trust: Trust = "stated"


class MemoryRejected(Payload, frozen=True, kw_only=True):
    """A proposal did not enter memory, and why. ``duplicate_of`` names the memory that says it already."""

    proposal: NonEmpty
    reason: NonEmpty
    detail: str = ""
    duplicate_of: str = ""
    kind: MemoryKind = "fact"
    scope: Level | None = None
    based_on: str = ""


class MemorySuperseded(Payload, frozen=True, kw_only=True):
    """A newer memory took this one's place; the old one stays."""

    memory: NonEmpty
    superseded_by: NonEmpty
    reason: str = ""
    kind: MemoryKind = "fact"
    scope: Level | None = None
    based_on: str = ""


class MemoryEdited(Payload, frozen=True, kw_only=True):
    """A person or an agent changed a memory."""

    memory: NonEmpty
    content: NonEmpty
    kind: MemoryKind = "fact"
    scope: Level | None = None
    by: str = ""
    expected_version: Count | None = None


class MemoryInvalidated(Payload, frozen=True, kw_only=True):
    """The memory is no longer true."""

    memory: NonEmpty
    reason: str = ""
    kind: MemoryKind = "fact"
    scope: Level | None = None
    by: str = ""


class MemoryRestored(Payload, frozen=True, kw_only=True):
    """An invalidated, superseded or expired memory holds again."""

    memory: NonEmpty
    kind: MemoryKind = "fact"
    scope: Level | None = None
    by: str = ""


class MemoryDeleted(Payload, frozen=True, kw_only=True):
    """The memory is removed from reads for good."""

    memory: NonEmpty
    kind: MemoryKind = "fact"
    scope: Level | None = None
    by: str = ""


class MemoryConsolidated(Payload, frozen=True, kw_only=True):
    """Several memories became one."""

    memory: NonEmpty
    sources: list[str]
    content: NonEmpty
    kind: MemoryKind = "fact"
    scope: Level | None = None
    based_on: str = ""


class MemoryRecalled(Payload, frozen=True, kw_only=True):
    """Memories were read into a context."""

    memories: list[str]
    query: str = ""
    scope: Level | None = None
    detail: JsonValue = None
