"""Texts whose every line names the same values: a record a line.

    ID: 7 | Name: Ada | Age: 36        - ID: 7, Name: Ada        id=7 name=Ada level=info

Only where all lines have the same names in the same order, so that a value that holds the mark makes none of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MIN_LINES = 2
MIN_PAIRS = 2
MAX_PAIRS = 64

_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,4}[.)])\s+")
_COLONS, _EQUALS = (
    re.compile(rf"\s*\**(?P<name>[^\W\d_][^:：=\"'{{}}\[\]<>|]{{0,39}}?)\**\s?{sign}\**\s?(?P<value>.*)")
    for sign in (r"(?::(?=[\s*]|$)|：)", "=(?!=)")
)
_WAYS = (
    (":：", _COLONS, (("|", r"\|"), (";", r"[;；] "), (",", r", |，"), (" - ", " - "))),
    ("=", _EQUALS, ((",", ", ?"), (";", "; ?"), (" ", r" +(?=[\w.-]+=)"))),
)
_SPLITS = tuple((signs, mark, re.compile(split), pair) for signs, pair, splits in _WAYS for mark, split in splits)


def pairs(lines: Sequence[str]) -> list[dict[str, str]] | None:
    """The records of lines that each name the same values; None when they do not."""
    if len(lines) < MIN_LINES:
        return None
    first = lines[0]
    for signs, mark, split, pair in _SPLITS:
        if mark in first and sum(map(first.count, signs)) >= MIN_PAIRS and (names := _record(first, split, pair)):
            rows = [_record(line, split, pair) for line in lines]
            if all(list(row) == list(names) for row in rows):
                return rows
    return None


def _record(line: str, split: re.Pattern[str], pair: re.Pattern[str]) -> dict[str, str]:
    """What a line names; nothing when some part of it names no value, or two have one name."""
    bullet = _BULLET.match(line)
    parts = split.split(line[bullet.end() if bullet else 0 :].strip(" |"), MAX_PAIRS)
    told = [match for part in parts if (match := pair.fullmatch(part.strip()))]
    named = {match["name"].strip(): match["value"].strip(' \t"') for match in told}
    return named if len(named) == len(parts) >= MIN_PAIRS else {}
