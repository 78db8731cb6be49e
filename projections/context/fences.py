"""Fences around text that others wrote: data for the model to read, never instructions to follow (C39).

A fenced text cannot close its fence: whatever looks like the fence's tag in it, spaced, in other letters of the same
look or with invisible characters between, loses its bracket. Nothing else of the text is changed.
"""

from __future__ import annotations

import unicodedata

import regex

NAME = "untrusted"

_INVISIBLE = r"[\p{Cf}\p{Mn}\s]*+"  # possessive: no letter is in it, and a run of spaces is looked at once
_STYLED = (
    range(0xAA, 0xBB), range(0x1D00, 0x1DC0), range(0x2070, 0x2190), range(0x2460, 0x2500), range(0xFF21, 0xFF5B),
    range(0x1D400, 0x1D800), range(0x1F110, 0x1F18A),
)  # fmt: skip
_DRAWN_ALIKE = {"u": "υսᴜ", "n": "ոпռɴ", "t": "тτᴛ", "r": "гᴦʀ", "s": "ѕꜱ", "e": "еҽᴇ", "d": "ԁժᴅ"}


def _alike(letter: str) -> str:
    """A class of what reads as a letter: in either case, in other styles (Unicode tells which), of other scripts."""
    styled = [chr(code) for codes in _STYLED for code in codes]
    same = [char for char in styled if unicodedata.normalize("NFKC", char).casefold() == letter]
    return f"[{letter}{letter.upper()}{_DRAWN_ALIKE[letter]}{''.join(same)}]"


_LETTERS = _INVISIBLE.join(map(_alike, NAME))
_TAG = regex.compile(rf"[<＜﹤‹〈⟨❮ᐸ˂《〈](?={_INVISIBLE}[/／⁄∕]?{_INVISIBLE}{_LETTERS})")


def fence(part: str, text: str) -> str:
    """The text between tags that it cannot close; ``part`` is a word of ours."""
    return f"<{NAME} {part}>\n{defused(text)}\n</{NAME}>"


def defused(text: str) -> str:
    """The text without anything that looks like a fence."""
    safe: str = _TAG.sub("&lt;", text)
    return safe
