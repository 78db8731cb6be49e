"""What passes the stages: a candidate, refined step by step, or a rejection; and what its scope knows already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from events.types.memory import MemoryProposed, Trust
from services.curation.statements import Statement, read

WEIGHTS: Mapping[str, int] = {
    "person": 3, "conversation": 3, "agent": 2, "settlement": 2, "experience": 1, "pack": 1,
}  # fmt: skip
"""What a source weighs where two contradict each other: the lighter one never takes the place of the heavier."""

AUTOMATIC = frozenset(("settlement", "conversation", "experience"))
"""Sources that nobody asked: they never bring back what somebody deleted."""


@dataclass(frozen=True)
class Candidate:
    """A proposal on its way through the stages.

    ``signal`` is its quality 0..1, ``score`` what it will enter with; ``supersedes`` names memories whose place it
    takes, each with why; ``notes`` say what the stages saw and did.
    """

    proposed: MemoryProposed
    content: str
    statement: Statement
    trust: Trust = "stated"
    signal: float = 0.0
    score: float = 0.0
    supersedes: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def with_note(self, note: str, **changes: Any) -> Candidate:
        """The candidate after a stage changed it, with the reason."""
        return replace(self, notes=(*self.notes, note), **changes)

    @cached_property
    def slot(self) -> tuple[str, str] | None:
        """What it says a value of: as it was proposed, else as rules read it."""
        return slot_of(self.proposed.entity, self.proposed.attribute, self.statement)


@dataclass(frozen=True)
class Rejected:
    """Why a candidate does not enter. ``reason`` is one of a closed list, ``detail`` never repeats a secret."""

    reason: str
    detail: str = ""
    duplicate_of: str = ""


class Known(Protocol):
    """What a scope knows when a candidate comes."""

    def holder(self, content: str) -> str:
        """The active memory, of whichever kind, that says the same in its normal form; empty: none."""
        ...

    def was_deleted(self, content: str) -> bool:
        """Whether a memory that said this was deleted."""
        ...

    def like(self, candidate: Candidate) -> Iterable[Memory]:
        """Active memories that may say the same or the opposite: they share the slot, or a word."""
        ...

    def alike(self, candidate: Candidate) -> Iterable[tuple[Memory, float]]:
        """Active memories of the same kind by likeness of meaning, 0..1; none, where there is no model."""
        ...


@dataclass(frozen=True)
class Memory:
    """An active memory as the stages see it."""

    memory: str
    kind: str
    content: str
    source: str
    statement: Statement
    slot: tuple[str, str] | None = None


def slot_of(entity: str, attribute: str, statement: Statement) -> tuple[str, str] | None:
    """Entity and attribute, as they are named, else as they were read."""
    if attribute:
        return (entity or statement.entity).casefold(), attribute.casefold()
    if statement.slot is not None and entity:
        return entity.casefold(), statement.slot[1]
    return statement.slot


def candidate_of(proposed: MemoryProposed) -> Candidate:
    """A proposal at the beginning of its way."""
    content = proposed.content.strip()
    return Candidate(proposed, content, read(content), proposed.trust)
