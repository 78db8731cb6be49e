"""Consolidation: which memories say what another one says, and less. Pure; without a model.

A fact, learning or procedure whose words all stand in another one of its kind, which says more, is covered by it: both
become one, with the fuller words. Tastes are left alone: who likes green tea need not like tea.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def merger_with(memory: Memory, others: Iterable[Memory]) -> Merger | None:
    """What can be consolidated with a memory; None: nothing. The first by name, so that everybody chooses alike."""
    if memory.kind not in KINDS:
        return None
    mergers = [Merger(memory, other) for other in others if _covers(memory, other)]
    mergers += [Merger(other, memory) for other in others if _covers(other, memory)]
    return min(mergers, key=lambda merger: (merger.fuller.memory, merger.covered.memory), default=None)


def _covers(fuller: Memory, covered: Memory) -> bool:
    if fuller.memory == covered.memory or fuller.kind != covered.kind:
        return False
    words, fewer = fuller.statement.words, covered.statement.words
    if not LEAST_WORDS <= len(fewer) < len(words) or not fewer <= words:
        return False
    if covered.slot is not None and fuller.slot != covered.slot:
        return False
    return not speaks_against(fuller.content, covered.content)
