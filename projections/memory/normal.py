"""The normal form of what a memory says: two texts with one normal form say the same, word for word.

>>> normal_form("The user  prefers CAFÉ tables!") == normal_form("the user prefers cafe\u0301 tables")
True
>>> normal_form("我喜欢靠窗的座位。") == normal_form("我 喜欢靠窗的座位")
True
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import regex

from projections.bounds import digest

_UNSEEN = regex.compile(r"[\p{Cf}\p{Cc}&&[^\s]]", flags=regex.V1)
_BETWEEN = regex.compile(r"[\p{P}\p{S}&&[^%+#$€£¥@&=<>°]]", flags=regex.V1)
_MINUS = regex.compile(r"(?<!\w)-(?=\d)")
_NUMBER_POINT = regex.compile(r"(?<=\d)[.,:/-](?=\d)")
_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
_CJK_SPACE = regex.compile(rf"(?<={_CJK}) (?=\S)|(?<=\S) (?={_CJK})")

_SHIFT = 0xE100
_HIDDEN = regex.compile("[\ue100-\ue17f]")


@lru_cache(maxsize=1_024)
def normal_form(text: str) -> str:
    """Compatibility-composed, case-folded, without punctuation, invisible characters and spaces that mean nothing.

    What carries meaning stays: signs before and between digits, units, ``c++`` and ``c#``.
    """
    seen = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold()
    kept = _NUMBER_POINT.sub(_hide, _MINUS.sub(lambda found: f" {_hide(found)}", seen))
    plain = " ".join(_BETWEEN.sub(" ", kept).split())
    shown: str = _HIDDEN.sub(lambda found: chr(ord(found[0]) - _SHIFT), _CJK_SPACE.sub("", plain))
    return shown


def _hide(found: regex.Match[str]) -> str:
    """A sign that stays, where the removal of signs does not see it: in the private use area."""
    return chr(ord(found[0]) + _SHIFT)


def saying(kind: str, text: str) -> str:
    """The key under which at most one active memory of a scope stands: its kind, and what it says."""
    return digest(f"{kind}\x1f{normal_form(text)}")
