"""The way of a proposal: quality, safety, duplicates, contradictions, score, metadata. Pure; every step says why.

What is to be kept verbatim (``infer=False``) is checked for unseen characters, credentials, orders and exact copies,
and else kept as it is. A pack's memories were judged where they come from: here only what the scope says already, or
otherwise, speaks against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import regex

from events.types.memory import MemoryProposed, MemoryType
from services.curation.proposal import WEIGHTS, Candidate, Known, Rejected, candidate_of
from services.curation.quality import good_enough, not_own_output
from services.curation.safety import mark_orders, without_credentials, without_unseen
from services.curation.sameness import not_copied, not_repeated, settle_contradictions

Stage = Callable[[Candidate, Known], Candidate | Rejected]

_DATED = regex.compile(
    r"\b(?:19|20)\d\d-\d\d-\d\d\b|\b(?:19|20)\d\d年|\b(?:yesterday|last (?:week|month|year)|on \w+day)\b|上周|"
    r"去年|上个月"
)


def _alone(stage: Callable[[Candidate], Candidate | Rejected]) -> Stage:
    """A stage that looks at the candidate alone."""
    return lambda candidate, known: stage(candidate)


def score(candidate: Candidate) -> Candidate:
    """What it enters with, 0..1: how much it says, how sure its proposer is, what its source weighs."""
    sure = candidate.proposed.confidence
    weight = WEIGHTS[candidate.proposed.source] / max(WEIGHTS.values())
    value = 0.5 * (candidate.signal or 0.8) + 0.3 * (0.7 if sure is None else sure) + 0.2 * weight
    return replace(candidate, score=round(value, 4))


def describe(candidate: Candidate) -> Candidate:
    """Fill in what the proposer left out: the slot as it was read, the type of memory by its kind."""
    proposed = candidate.proposed
    kind_type: MemoryType = proposed.memory_type
    if kind_type == "semantic" and proposed.kind == "procedure":
        kind_type = "procedural"
    elif kind_type == "semantic" and _DATED.search(candidate.content):
        kind_type = "episodic"
    entity, attribute = candidate.slot or (proposed.entity, "")
    named = {} if proposed.attribute else {"entity": entity, "attribute": attribute}
    described = msgspec.structs.replace(proposed, memory_type=kind_type, **named)
    return replace(candidate, proposed=described)


STAGES: tuple[Stage, ...] = (
    _alone(without_unseen), _alone(without_credentials), _alone(not_own_output), _alone(mark_orders), not_copied,
    _alone(good_enough), not_repeated, settle_contradictions, _alone(score), _alone(describe),
)  # fmt: skip

VERBATIM: tuple[Stage, ...] = (
    _alone(without_unseen), _alone(without_credentials), _alone(mark_orders), not_copied, _alone(score),
)  # fmt: skip

CARRIED: tuple[Stage, ...] = (*VERBATIM[:-1], not_repeated, settle_contradictions, _alone(score))


def decide(proposed: MemoryProposed, known: Known) -> Candidate | Rejected:
    """The candidate as it enters memory, or why it does not."""
    at: Candidate | Rejected = candidate_of(proposed)
    for stage in STAGES if proposed.infer else CARRIED if proposed.source == "pack" else VERBATIM:
        if isinstance(at, Rejected):
            break
        at = stage(at, known)
    return at
