"""A whole context: its parts in their order, each within its cap, all within the budget.

The order never changes, and what changes seldom comes first, so that a model's cache can keep what it has read: a
breakpoint is marked where everything before it is likely to be the same next time. Whatever came from tools or people
stands in a fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from projections.bounds import digest
from projections.context import sections
from projections.context.choosing import Filled
from projections.context.cuts import cut
from projections.context.fences import defused, fence
from projections.context.filling import fill
from projections.context.material import Material
from projections.context.remembered import PART, Remembered, memories_text, not_told_by, told_in
from projections.context.tokens import count
from projections.policy.text import standing_tokens
from projections.policy.text import told_in as rules_in

DEFAULT_TOKENS = 120_000

PARTS = ("prefix", "state", "policy", "memories", "evidence", "cards", "recalled", "turns", "originals", "query")
"""The parts, in their order."""

CAPS = {
    "prefix": 16_000, "state": 4_000, "policy": 1_000, "memories": 1_200, "evidence": 1_000, "cards": 16_000,
    "recalled": 2_000, "turns": 3_000, "originals": 32_000, "query": 8_000,
}  # fmt: skip
"""Most tokens of a part, whatever the budget."""

SHARES = {
    "prefix": 0.5, "state": 0.15, "policy": 0.1, "memories": 0.1, "evidence": 0.1, "recalled": 0.15, "turns": 0.25,
    "originals": 0.5, "query": 0.5,
}  # fmt: skip
"""Most of the budget that a part takes; the cards get what the others leave."""

CACHED = ("prefix", "evidence", "cards")
"""Parts after which a cache breakpoint is marked."""

_FIRST = ("policy", "query", "originals", "prefix", "state", "memories", "evidence", "turns", "recalled")
_MEMORIES = ("memories", "recalled")
_FENCED = frozenset(("evidence", "cards", "recalled", "turns", "originals"))


class Part(NamedTuple):
    """One part as it stands in the context; ``cache``: a cache breakpoint follows it."""

    name: str
    text: str
    tokens: int
    cache: bool


class Assembled(NamedTuple):
    """A context. ``told`` and ``left_out`` are cards: with all or some of their facts in it, and with none.
    ``memories``: those that it tells."""

    text: str
    parts: tuple[Part, ...]
    tokens: int
    told: tuple[str, ...]
    left_out: tuple[str, ...]
    digest: str
    memories: tuple[Remembered, ...] = ()


def assemble(material: Material, *, max_tokens: int = DEFAULT_TOKENS, parts: Sequence[str] = PARTS) -> Assembled:
    """The context of at most ``max_tokens`` tokens, by the estimate of ``tokens``."""
    wanted = [name for name in PARTS if name in parts]
    texts: dict[str, str] = {}
    left = max_tokens
    for name in _FIRST:
        if name in wanted:
            texts[name] = _within(name, _room(name, max_tokens, left, material), material)
            left -= count(texts[name]) + 1 if texts[name] else 0
        if name == "policy":
            material = _said_once(material, texts.get(name, ""))
    cards = Filled("", {}, 0)
    if "cards" in wanted:
        room = min(CAPS["cards"], left) - count(_framed("cards", "")) - 1
        cards = fill(material.sources, material.needs, room)
        texts["cards"] = _framed("cards", cards.text) if cards.text else ""
    return _finished(wanted, texts, cards, material)


def _said_once(material: Material, policy: str) -> Material:
    """Without the memories that the policy's rules say already."""
    told = {(rule.document["scope"], rule.document["belief"]) for rule in rules_in(material.policy, policy)}
    memories, brought = (not_told_by(told, some) for some in (material.memories, material.brought))
    return replace(material, memories=memories, brought=brought)


def _room(name: str, max_tokens: int, left: int, material: Material) -> int:
    """Most tokens of a part. The user's own standing preferences are given what they need, whatever the budget."""
    share = int(max_tokens * SHARES[name])
    if name == "policy" and (standing := standing_tokens(material.policy)):
        share = max(share, standing + count(_framed(name, "")))
    return min(CAPS[name], share, left)


def _within(name: str, room: int, material: Material) -> str:
    """A part of at most ``room`` tokens with its frame; empty when there is nothing to say, or no room."""
    room -= count(_framed(name, "")) + (name in _FENCED)  # line breaks next to one another weigh as one
    text = _body(name, room, material) if room > 0 else ""
    return _framed(name, text) if text else ""


def _body(name: str, room: int, material: Material) -> str:
    match name:
        case "prefix":
            return material.prompt if count(material.prompt) <= room else ""  # half a prompt is none
        case "state":
            return sections.state_text(material, room)
        case "policy":
            return sections.policy_text(material, room)
        case "evidence":
            return sections.evidence_text(material, room)
        case "turns":
            return sections.turns_text(material.turns, room)
        case "memories":
            return memories_text(material.memories, room)
        case "recalled":
            return sections.recalled_text(material, room)
        case "originals":
            return sections.originals_text(material, room)
        case _:
            return cut(material.query, room)


def _framed(name: str, text: str) -> str:
    if name in _FENCED:
        return fence(name, text)
    # these have fences of their own within
    return text if name == "prefix" else f"## {name}\n{text if name in (PART, 'policy') else defused(text)}"


def _finished(wanted: Sequence[str], texts: dict[str, str], cards: Filled, material: Material) -> Assembled:
    shown = [Part(name, texts[name], count(texts[name]), name in CACHED) for name in wanted if texts.get(name)]
    text = "\n".join(part.text for part in shown)
    told = {place for place, facts in cards.chosen.items() if facts}
    return Assembled(
        text,
        tuple(shown),
        count(text),
        tuple(source.card for place, source in enumerate(material.sources) if place in told),
        tuple(source.card for place, source in enumerate(material.sources) if place not in told),
        f"b2:{digest(text)}",
        tuple(told_in(map(texts.get, _MEMORIES, ("", "")), (*material.memories, *material.brought))),
    )
