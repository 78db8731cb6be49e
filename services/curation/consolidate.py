"""Consolidation: which memories say what another one says, and less. Pure; without a model.

A fact, learning or procedure whose words all stand, in their order, in another one of its kind, which says more, is
covered by it: both become one, with the fuller words. Tastes are left alone: who likes green tea need not like tea.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import regex

from projections.memory.normal import normal_form
from services.curation.proposal import Memory
from services.curation.sameness import speaks_against

KINDS = frozenset(("fact", "learning", "procedure", "convention"))
_PIECE = regex.compile(r"\p{Han}|[^\s\p{Han}]+")
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
    if len(covered.statement.words) < LEAST_WORDS:
        return False
    if covered.slot is not None and fuller.slot != covered.slot:
        return False
    return _in_order(fuller.content, covered.content) and not speaks_against(fuller.content, covered.content)


def _in_order(fuller: str, covered: str) -> bool:
    """Whether the words of one stand in the other in their order, be it with others between them."""
    pieces, fewer = _pieces(fuller), _pieces(covered)
    rest = iter(pieces)
    return len(fewer) < len(pieces) and all(piece in rest for piece in fewer)


@lru_cache(maxsize=8_192)
def _pieces(text: str) -> tuple[str, ...]:
    # each new memory is held against many: their words are found once
    return tuple(_PIECE.findall(normal_form(text)))
