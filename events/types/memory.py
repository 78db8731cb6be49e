"""Long-term memory: what was proposed, what became of it, and who used it."""

from __future__ import annotations

from typing import Literal

from events.types.base import Count, JsonValue, Level, NonEmpty, Payload, Seconds, Unit

MemoryKind = Literal["preference", "fact", "correction", "learning", "procedure", "convention"]
MemoryType = Literal["semantic", "episodic", "procedural"]


class MemoryProposed(Payload, frozen=True, kw_only=True):
    """A candidate for long-term memory; the curator decides."""

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


class MemoryRejected(Payload, frozen=True, kw_only=True):
    """A proposal did not enter memory, and why."""

    proposal: NonEmpty
    reason: NonEmpty
    kind: MemoryKind = "fact"
    scope: Level | None = None
    based_on: str = ""


class MemorySuperseded(Payload, frozen=True, kw_only=True):
    """A newer memory took this one's place; the old one stays."""

    memory: NonEmpty
    superseded_by: NonEmpty
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
