"""Texts of lines that one well-known tool writes, all alike: places in files, listings, commits, tests, changes.

    src/a.py:7: words       -rw-r--r-- 1 ann dev 120 May 3 10:00 a.txt       1a2b3c4 Mend the lamp
    FAILED tests/a.py::test_b - words                                        src/a.py | 7 ++--

A line that only sums the others up may stand before or after them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_OUTCOME = "(?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_KINDS = (
    ("::", re.compile(rf"{_OUTCOME} (?P<test>[^\s:]+::\S+)(?: - (?P<reason>.*))?")),
    ("::", re.compile(rf"(?P<test>[^\s:]+::\S+) {_OUTCOME}(?: +\[ *\d+%\])?")),
    (
        ":",
        re.compile(
            r"(?P<path>(?:[A-Za-z]:)?(?=[^\s:]*[./\\])[^\s:]++):(?P<line>\d+):(?:(?P<column>\d+):)? ?(?P<text>.*)"
        ),
    ),
    (
        "-",
        re.compile(
            r"(?P<mode>[bcdlps-][rwxsStT-]{9}[.+@]?) +(?P<links>\d+) +(?P<owner>\S+) +(?P<group>\S+) +(?P<size>\d+) +"
            r"(?P<modified>[^\W\d]{3} +\d{1,2} +(?:\d\d:\d\d|\d{4})|\d{4}-\d\d-\d\d \d\d:\d\d\S*(?: [+-]\d{4})?) "
            r"(?P<name>.+)"
        ),
    ),
    (" | ", re.compile(r" *(?P<path>[^\s|](?:[^|]*[^\s|])?) +\| +(?P<changes>\d+) (?P<kinds>\++-*|-+)")),
)
"""What stands in each line of a kind, and how such a line reads."""

_COMMIT = re.compile(r"(?P<commit>[0-9a-f]{7,40}) (?:\((?P<refs>[^)]+)\) )?(?P<subject>\S.*)")
_SUM = re.compile(r"total \d+[KMGT]?| *\d+ files? changed(?:, \d+ [a-z]+\([+-]\))*")


def told_alike(lines: Sequence[str]) -> list[dict[str, str]] | None:
    """What lines of one of these kinds tell, each as a record; None when one of them is of another kind."""
    if lines and lines[0][:6] == "total " and _SUM.fullmatch(lines[0]):
        lines = lines[1:]
    if lines and " changed" in lines[-1] and _SUM.fullmatch(lines[-1]):
        lines = lines[:-1]
    if not lines:
        return None
    for sign, kind in _KINDS:
        if sign in lines[0] and kind.fullmatch(lines[0]):
            return _told(lines, kind)
    return _told(lines, _COMMIT) if _COMMIT.fullmatch(lines[0]) and _are_hexadecimal(lines) else None


def _told(lines: Sequence[str], kind: re.Pattern[str]) -> list[dict[str, str]] | None:
    found: list[dict[str, str]] = []
    for line in lines:
        told = kind.fullmatch(line)
        if told is None:
            return None
        found.append({name: text for name, text in told.groupdict().items() if text and name != "kinds"})
    return found


def _are_hexadecimal(lines: Sequence[str]) -> bool:
    """Whether the first words of lines are neither all numbers nor all words."""
    words = "".join(line.partition(" ")[0] for line in lines)
    return not words.isdigit() and not words.isalpha()
