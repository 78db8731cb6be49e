"""Columns of tables in a text whose heads are named for a secret: their cells are masked, everything else stays.

A head is a line of short names with one mark between them (``|``, a tab, ``;``, ``,``, two spaces or more); its table
goes on for as long as lines have as many cells. Text around it, as in a message, makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from projections.cards.reading.forms import MASK

_MARKS = {"|": re.compile(r"\|"), "\t": re.compile(r"\t"), ";": re.compile(";"), ",": re.compile(","),
          "  ": re.compile(r" {2,}")}  # fmt: skip
_RULE = re.compile(r"[\s|:+=-]+")
_LONGEST_NAME = 40
_MOST_MARKS = 64
_SHORTEST = 4

Span = tuple[int, int]


def without_columns(text: str, is_secret: Callable[[str], bool]) -> str:
    """The text with the cells masked that stand under a name of which ``is_secret`` is true."""
    if "\n" not in text:
        return text
    lines = text.split("\n")
    number = 0
    while number < len(lines) - 1:
        number = _masked_from(lines, number, is_secret)
    return "\n".join(lines)


def _masked_from(lines: list[str], number: int, is_secret: Callable[[str], bool]) -> int:
    """Mask the table whose head this line is, if it is one; the first line that is still to be looked at."""
    for mark in _MARKS:
        if mark in lines[number]:
            cells = _cells(lines[number], mark)
            if columns := _secret(lines[number], cells, is_secret):
                return _mask(lines, number + 1, mark, len(cells), columns)
    return number + 1


def _secret(line: str, cells: Sequence[Span], is_secret: Callable[[str], bool]) -> list[int]:
    names = [line[start:end].strip(" \t\r\"'*") for start, end in cells]
    if any(len(name) > _LONGEST_NAME for name in names):
        return []
    return [column for column, name in enumerate(names) if name and is_secret(name)]


def _mask(lines: list[str], first: int, mark: str, width: int, columns: Sequence[int]) -> int:
    for number in range(first, len(lines)):
        line = lines[number]
        if _RULE.fullmatch(line):
            continue
        cells = _cells(line, mark)
        if len(cells) != width:
            return number
        for start, end in (cells[column] for column in reversed(columns)):
            bare = line[start:end].strip()
            if len(bare) >= _SHORTEST and " " not in bare:
                line = line[:start] + line[start:end].replace(bare, MASK) + line[end:]
        lines[number] = line
    return len(lines)


def _cells(line: str, mark: str) -> list[Span]:
    """Where the cells of a line are; none where it has more than a table has columns."""
    if line.count(mark) > _MOST_MARKS:
        return []
    begin = len(line) - len(line.lstrip(" ")) if mark == "  " else 0
    marks = [match.span() for match in _MARKS[mark].finditer(line.rstrip(), begin)]
    starts = [begin, *(end for _, end in marks)]
    ends = [*(start for start, _ in marks), len(line)]
    return list(zip(starts, ends, strict=True))
