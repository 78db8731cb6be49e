"""Fitting a conversation into a model's window: what is cut or left out says so, and where the whole of it is.

First the outputs of tools are cut to head and tail, ever shorter, then what was said at length; then the oldest turns
go, but never the system prompt, the first request or the last turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import regex

from projections.bounds import canonical, clip
from services.reactors.settling.conversation import Turn

BYTES_A_TOKEN = 3
"""Of any language, on the safe side: English has 4, Chinese 3."""

TOKENS_A_MESSAGE = 6
_GRAPHEME = regex.compile(r"\X")
_OUTPUT_CAPS = (32_000, 16_000, 8_000, 4_000, 2_000, 1_000, 500, 250)
_SAID_CAPS = (16_000, 4_000, 1_000)

Groups = Sequence[Sequence[Turn]]


def tokens_of(message: dict[str, Any]) -> int:
    """About how many tokens a message has, rather too many."""
    size = _size(message.get("content")) + sum(_size(call["function"]) for call in message.get("tool_calls", ()))
    return TOKENS_A_MESSAGE + -(-size // BYTES_A_TOKEN)


def fit(groups: Groups, room: int) -> list[dict[str, Any]] | None:
    """The messages of a conversation within ``room`` tokens; None where not even its ends fit."""
    if _total(groups) <= room:
        return _messages(groups)
    for cap in _OUTPUT_CAPS:
        cut = [[_cut(turn, cap) if turn.is_output else turn for turn in group] for group in groups]
        if _total(cut) <= room:
            return _messages(cut)
    for cap in _SAID_CAPS:
        cut = [[_cut(turn, cap) for turn in group] for group in cut]
        if _total(cut) <= room:
            return _messages(cut)
    return _without_the_oldest(cut, room)


def _without_the_oldest(groups: Groups, room: int) -> list[dict[str, Any]] | None:
    first = next((n + 1 for n, group in enumerate(groups) if group[0].message["role"] == "user"), 0)
    head, rest = groups[:first], groups[first:]
    if not head and groups and groups[0][0].message["role"] == "system":
        head, rest = groups[:1], groups[1:]
    left = room - _total(head) - TOKENS_A_MESSAGE - 40
    kept: list[Sequence[Turn]] = []
    for group in reversed(rest):
        left -= _total([group])
        if left < 0:
            break
        kept.insert(0, group)
    if not kept:
        return None
    gone = sum(len(group) for group in rest[: len(rest) - len(kept)])
    said = {"role": "user", "content": f"[{gone} turns are left out here: the window has no room for them]"}
    return [*_messages(head), said, *_messages(kept)]


def _total(groups: Groups) -> int:
    return sum(tokens_of(turn.message) for group in groups for turn in group)


def _messages(groups: Groups) -> list[dict[str, Any]]:
    return [turn.message for group in groups for turn in group]


def _cut(turn: Turn, cap: int) -> Turn:
    content = turn.message["content"]
    if not isinstance(content, str) or len(content) <= cap or turn.message["role"] in ("system", "developer"):
        return turn
    return Turn({**turn.message, "content": head_and_tail(content, cap, turn.event)}, turn.event)


def head_and_tail(text: str, cap: int, event: str) -> str:
    """Two thirds of ``cap`` characters from the head of a text, the rest from its tail, and what is missing between."""
    head = clip(text, cap * 2 // 3)
    tail = _from_boundary(text, len(text) - cap // 3)
    where = f"; the whole is in event {event}" if event else ""
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters are left out here{where}]\n{tail}"


def _from_boundary(text: str, start: int) -> str:
    """The text from ``start`` on, or a little later, where a visible character begins."""
    if text.isascii():
        return text[start:]
    bounds = (match.start() for match in _GRAPHEME.finditer(text, max(0, start - 64)))
    return text[next((at for at in bounds if at >= start), len(text)) :]


def _size(value: Any) -> int:
    if value is None:
        return 0
    return len((value if isinstance(value, str) else canonical(value)).encode())
