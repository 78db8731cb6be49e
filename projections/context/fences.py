"""Fences around text that others wrote: data for the model to read, never instructions to follow (C39).

A fenced text cannot close its fence: whatever looks like the fence's tag in it, spaced, in other letters of the same
look or with invisible characters between, loses its bracket. Nothing else of the text is changed.
"""

from __future__ import annotations

import regex

NAME = "untrusted"

_INVISIBLE = r"[\p{Cf}\p{Mn}\s]*"
_LETTERS = _INVISIBLE.join(
    f"[{letter}{letter.upper()}{chr(ord(letter) + 0xFEE0)}{chr(ord(letter) + 0xFEC0)}]" for letter in NAME
)
_TAG = regex.compile(rf"[<＜﹤‹〈⟨](?={_INVISIBLE}[/／⁄∕]?{_INVISIBLE}{_LETTERS})")


def fence(part: str, text: str) -> str:
    """The text between tags that it cannot close; ``part`` is a word of ours."""
    return f"<{NAME} {part}>\n{defused(text)}\n</{NAME}>"


def defused(text: str) -> str:
    """The text without anything that looks like a fence."""
    safe: str = _TAG.sub("&lt;", text)
    return safe
