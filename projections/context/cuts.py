"""Cutting text to a number of tokens, between graphemes (C30) and with a sign of it."""

from __future__ import annotations

from projections.bounds import clip
from projections.context.tokens import count

_SHORTEST = 2
_WORTH = 8
"""Tokens that the head of a line must have room for: what is shorter tells nothing but that something was cut."""


def cut(text: str, tokens: int) -> str:
    """The head of a text, at most so many tokens; an ellipsis where something is missing, nothing where no room is."""
    if count(text) <= tokens:
        return text
    low, high = 0, min(len(text), tokens * 16)
    while low < high:
        middle = (low + high + 1) // 2
        if count(clip(text, middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return clip(text, low) if low >= _SHORTEST else ""


def first_lines(lines: list[str], tokens: int) -> str:
    """As many of the first lines as fit whole; the first that does not fit is cut, where enough of it is left."""
    kept: list[str] = []
    for line in lines:
        joined = "\n".join([*kept, line])
        if count(joined) > tokens:
            room = tokens - count("\n".join(kept)) - 2
            head = cut(line, room) if room >= _WORTH else ""
            return "\n".join([*kept, head] if head else kept)
        kept.append(line)
    return "\n".join(kept)
