"""Exact values: what a later decision either uses exactly or does not use, equal ones as equal text.

A value is an id, a number, a date, a time, a path, an address or a name. Equal are ``1,200`` and ``1200.0``, ``HAT136``
and ``hat136``, ``#W12`` and ``W12``, ``May 20`` and ``2024-05-20`` (by its day), ``3:05 PM`` and ``15:05``, composed
and decomposed accents, full width and half. Ubiquitous values (true, null, small numbers, bare years) are none, since
their turning up twice says nothing.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_VALUES = 256
"""Values of one event, at most."""

MAX_WORDS = 6
"""A short text of at most so many words is a name as a whole."""

MAX_VALUE = 80
"""Longest value, in code points."""

MASK = "[masked]"
"""What stands for a secret; see ``secrets``."""

UBIQUITOUS = frozenset((
    "true", "false", "null", "none", "nan", "yes", "no", "ok", "okay", "success", "error", "n/a", "unknown", "default",
    "status", "active", "available", "done", "failed", "user", "and", "the", "all", "any", "not", "you", "new", MASK,
))  # fmt: skip

MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sep sept", "october oct", "november nov", "december dec"), start=1)
    for name in names.split()
}  # fmt: skip

_DATE = re.compile(r"(\d{4})[-/](\d{2})[-/](\d{2})(?:[t ](.*))?")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(:\d{2})? ?(?:([ap])\.?m\.?)?")
_MONEY = "$€£¥₹₩"


@lru_cache(maxsize=32_768)
def forms(token: str) -> tuple[str, ...]:
    """The normal form of a token; for a date also its day without the year, and without the time of day."""
    value = normal(token)
    if not value:
        return ()
    date = _DATE.fullmatch(value) if value[:1].isdigit() else None
    if not date:
        return (value,)
    day = (f"{date[1]}-{date[2]}-{date[3]}", f"--{date[2]}-{date[3]}")
    return (*day, value) if date[4] else day


def normal(token: str) -> str:
    """A token in normal form (NFKC, no case, numbers without separators), or ``""`` when it says nothing."""
    if len(token) > MAX_VALUE:
        return ""
    text = token if token.isascii() else unicodedata.normalize("NFKC", token)
    text = text.strip().casefold().lstrip("# ")
    if text in UBIQUITOUS:
        return ""
    bare = text.strip(_MONEY).rstrip() if text[:1] in _MONEY or text[-1:] in _MONEY else text
    if _NUMBER.fullmatch(bare):
        return _number(bare)
    clock = _CLOCK.fullmatch(text)
    if clock:
        return _clock(text, clock)
    # two characters are a word in Chinese, and a syllable elsewhere
    return text if MAX_VALUE >= len(text) >= (3 if text.isascii() else 2) else ""


def _number(text: str) -> str:
    digits = text.replace(",", "").lstrip("+")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    sign, size = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    if len(size.replace(".", "")) < 3 or (len(size) == 4 and "1900" <= size <= "2100"):
        return ""
    return sign + size


def _clock(text: str, clock: re.Match[str]) -> str:
    """A time of day in 24 hours, without seconds that are zero."""
    hour = int(clock[1])
    if clock[4]:
        hour = hour % 12 + (12 if clock[4] == "p" else 0)
    if hour > 24 or int(clock[2]) > 59:
        return text
    return f"{hour:02}:{clock[2]}{'' if clock[3] in (None, ':00') else clock[3]}"
