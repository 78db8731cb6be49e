"""Consolidation: which memories say what another one says, and less. Pure; without a model.

A fact, learning or procedure whose words all stand in another one of its kind, which says more, is covered by it: both
become one, with the fuller words. Tastes are left alone: who likes green tea need not like tea.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from services.curation.proposal import Memory
from services.curation.sameness import speaks_against

KINDS = frozenset(("fact", "learning", "procedure", "convention"))
LEAST_WORDS = 3
"""Words that a memory must have to be covered: fewer say too little of what it is about."""


class Merger(NamedTuple):
    """``fuller`` covers ``covered``."""

    fuller: Memory
    covered: Memory


def merger_with(memories: Mapping[str, Memory], name: str) -> Merger | None:
    """What can be consolidated with a memory; None: nothing. The first by name, so that everybody chooses alike."""
    memory = memories.get(name)
    if memory is None or memory.kind not in KINDS:
        return None
    for other in sorted(memories.values(), key=lambda one: one.memory):
        if other.memory == name or other.kind != memory.kind:
            continue
        if _covers(memory, other):
            return Merger(memory, other)
        if _covers(other, memory):
            return Merger(other, memory)
    return None


def _covers(fuller: Memory, covered: Memory) -> bool:
    words, fewer = fuller.statement.words, covered.statement.words
    if not LEAST_WORDS <= len(fewer) < len(words) or not fewer <= words:
        return False
    if covered.slot is not None and fuller.slot != covered.slot:
        return False
    return not speaks_against(fuller.content, covered.content)
