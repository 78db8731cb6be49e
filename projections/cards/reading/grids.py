"""Tables as databases and data tools print them: with rules, in boxes, or with every column aligned to the right.

     id | name        +----+------+      id  name        ┌────┬──────┐         id  name
    ----+------       | id | name |      --  ----        │ id │ name │      0   1   Ada
      1 | Ada         +----+------+      1   Ada         ├────┼──────┤      1   2    Bo
    (1 row)           |  1 | Ada  |                      │ 1  │ Ada  │
                      +----+------+                      └────┴──────┘      [2 rows x 2 columns]

Or a value a line, the names aligned to the right, a blank line between rows (``   id = 1``, `` name = Ada``).

Cells are cut at the signs between them, so that wide characters do no harm; at places only where a value has such a
sign in it, and where nothing but space stands between cells. A line that counts the rows has to count them right.
Tables that may go on with a cell in the next line, and those without rows, are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from unicodedata import east_asian_width

MAX_COLUMNS = 64
MAX_NAME = 64
"""Longest name of a column, in code points."""

MAX_COUNT = 80
"""Longest line that counts rows, in code points."""

MIN_UNCOUNTED = 2
"""How few rows, or columns without a frame, are enough where no line counts the rows."""

_SIGNS = frozenset("+-=|") | {chr(code) for code in range(0x2500, 0x2580)}
_RULE = re.compile(r"[-+=|]++|[\u2500-\u257f]++|[- ]++|[= ]++|[─ ]++")
_RUN = re.compile(r"[-=\u2500\u2501\u2550]+")
_BARS = ("|", "│", "┃", "║")
_DRAWN_BAR = re.compile("[│┃║]")
_WRAPPING = ("┃", "║")
"""Bars in the heads of boxes whose tools break long values."""

_GOES_ON = ("+", ".", "↵", "…")
"""Signs at the right edge of a column for a value that goes on in the next line."""

_COUNT = re.compile(
    r"\((?P<held>\d{1,9}) ?[^\W\d]+(?: [^\W\d]+)?\)|(?P<set>\d{1,9}) rows? in set(?:, \d+ warnings?)? \(\d+\.\d+ sec\)"
)
_SHAPE = re.compile(r"\[(?P<rows>\d{1,9}) rows x (?P<columns>\d{1,9}) columns\]")
_WORD = re.compile(r"[^ ]+")
_FILLER = "\ufdd0"
"""Stands for the second place of a wide character; no character itself."""

MIN_WIDTH = 5
"""How wide names are at least where each value has a line."""

Span = tuple[int, int]
Rows = list[dict[str, str]]


class _Cut(NamedTuple):
    """``spans``: where columns stand. ``barred``: a bar stands between them; ``framed``: around them, too.

    ``drawn``: with signs for drawing, not with those of ASCII.
    """

    spans: list[Span]
    barred: bool
    framed: bool
    drawn: bool


def grid(lines: Sequence[str]) -> Any:
    """The rows of lines that are a table; ``[words, rows]`` where a line of words stands before it; else None.

    Lines are not blank. The first may lack the space that it began with.
    """
    if len(lines) < MIN_UNCOUNTED + 1:
        return None
    if any(map(_is_rule, lines[:4])):
        if (rows := _ruled(lines)) is not None:
            return rows
        return None if _is_rule(lines[0]) or (rows := _ruled(lines[1:])) is None else [lines[0].strip(), rows]
    if lines[1][:2] == "0 ":
        return _aligned(lines)
    return None if lines[2][:2] != "0 " or (rows := _aligned(lines[1:])) is None else [lines[0].strip(), rows]


def _is_rule(line: str) -> bool:
    """Whether a line keeps rows apart; one with bars but no crosses is Markdown, and read elsewhere."""
    text = line.strip()
    if not text or text[0] not in _SIGNS or text[-1] not in _SIGNS or not _RULE.fullmatch(text):
        return False
    return bool(_RUN.search(text)) and ("|" not in text or "+" in text)


def _ruled(lines: Sequence[str]) -> Rows | None:
    """The rows of a table with a rule below its names, and maybe around it and between its rows."""
    counted = _COUNT.fullmatch(lines[-1].strip()) if len(lines[-1]) <= MAX_COUNT and lines[-1].strip() else None
    lines = lines[: len(lines) - bool(counted)]
    top = lines[0].strip()[:1] if lines and _is_rule(lines[0]) else ""
    lines = lines[bool(top) :]
    if len(lines) <= MIN_UNCOUNTED or _is_rule(lines[0]) or not _is_rule(lines[1]):
        return None
    head, rule, body = lines[0], lines[1], lines[2:]
    body = body[: len(body) - _is_rule(body[-1])]
    apart = len(body) > 1 and _is_rule(body[1])
    if apart and not all(map(_is_rule, body[1::2])):
        return None
    body = body[::2] if apart else body
    if counted and len(body) != int(counted["held"] or counted["set"]):
        return None
    spans = [run.span() for run in _RUN.finditer(rule)]
    framed = head.strip()[0] in _BARS
    if len(spans) > MAX_COLUMNS or (len(spans) < MIN_UNCOUNTED and not framed and not counted):
        return None
    barred = framed or (len(spans) > 1 and " " not in rule.strip())
    wraps = (top == "╭" or head.strip()[0] in _WRAPPING) and not apart
    cut = _Cut(spans, barred, framed, not rule.isascii())
    return _rows(_names(head, cut), body, cut, wraps)


def _rows(names: Sequence[str] | None, body: Sequence[str], cut: _Cut, wraps: bool) -> Rows | None:
    """``wraps``: an empty cell may belong to a value that is broken, so that there must be none."""
    if not names or not body or not _are_names(names):
        return None
    rows: Rows = []
    for line in body:
        cells = None if _is_rule(line) else _cells(line, cut)
        if cells is None or (wraps and not all(cells)):
            return None
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _are_names(names: Sequence[str]) -> bool:
    return all(0 < len(name) <= MAX_NAME for name in names) and len(set(names)) == len(names)


def _names(head: str, cut: _Cut) -> list[str] | None:
    """The names above a rule; where the space before the first is lost, it may have stood at the right."""
    cells = _cells(head, cut)
    if cut.barred or (cells and all(cells)):
        return cells
    return _cells(" " * (cut.spans[0][1] - len(head.partition("  ")[0])) + head, cut)


def _cells(line: str, cut: _Cut) -> list[str] | None:
    """The cells of a line, without the space around them; None when it does not fit, or goes on in the next one."""
    edge = cut.spans[-1][1] + (not cut.barred)
    if line[-1:] in _GOES_ON and not cut.framed and len(_widened(line)) >= edge:
        return None
    if not cut.barred:
        return _by_space(line, cut.spans)
    text = line.strip() if cut.framed else line
    if cut.framed:
        if len(text) <= 1 or text[0] not in _BARS or text[-1] not in _BARS:
            return None
        text = text[1:-1]
    parts = _DRAWN_BAR.split(text) if cut.drawn else text.split("|")
    if len(parts) != len(cut.spans):
        if len(cut.spans) == 1:
            return None
        line = line.rstrip()[:-1] if cut.framed else line
        if any(line[end:begin] not in _BARS for (_, end), (begin, _) in pairwise(cut.spans)):
            return None
        parts = _at(line, cut.spans)
    whole = not any(part[-1:] in _GOES_ON for part in (parts if cut.framed else parts[:-1]))
    return [part.strip() for part in parts] if whole else None


def _at(line: str, spans: Sequence[Span]) -> list[str]:
    """What stands at the places of columns, the last one to the end of the line."""
    return [line[begin:end] for begin, end in spans[:-1]] + [line[spans[-1][0] :]]


def _by_space(line: str, spans: Sequence[Span]) -> list[str] | None:
    """Cells with nothing but space between them; wide characters take one place, or else two."""
    if line.isascii():
        return [part.strip() for part in _at(line, spans)] if _is_free(line, spans) else None
    fits = [_at(way, spans) for way in (line, _widened(line)) if _is_free(way, spans)]
    found = [[part.replace(_FILLER, "").strip() for part in parts] for parts in fits]
    return found[0] if found and found[0] == found[-1] else None


def _widened(line: str) -> str:
    """A line with as many code points as places that it takes."""
    if line.isascii():
        return line
    return "".join(sign + _FILLER if east_asian_width(sign) in "WF" else sign for sign in line)


def _is_free(line: str, spans: Sequence[Span]) -> bool:
    """Whether nothing stands before and between columns."""
    between = (line[end:begin] for (_, end), (begin, _) in pairwise(spans))
    return not line[: spans[0][0]].strip() and not any(part.strip() for part in between)


def _aligned(lines: Sequence[str]) -> Rows | None:
    """The rows of a data frame: numbered from 0, each column ends below its name, in every line at the same place."""
    shape = _SHAPE.fullmatch(lines[-1].strip()) if lines[-1][:1] == "[" and len(lines[-1]) <= MAX_COUNT else None
    body = lines[1 : len(lines) - bool(shape)]
    if not body or (shape is None and len(body) < MIN_UNCOUNTED):
        return None
    width = len(body[0])
    if any(len(line) != width for line in body) or len(lines[0]) > width:
        return None
    head = lines[0].rjust(width)
    first = len(str(len(body) - 1))
    edges = [first, *(word.end() for word in _WORD.finditer(head))]
    names = head.split()
    if len(edges) > MAX_COLUMNS or not _are_names(names) or head[:first].strip() or "..." in names or "\\" in names:
        return None
    if shape and (int(shape["rows"]), int(shape["columns"])) != (len(body), len(names)):
        return None
    rows = [list(_ending_at(line, edges)) for line in body]
    numbered = all(line[:first].rstrip() == str(at) for at, line in enumerate(body))
    if not numbered or not all(len(row) == len(names) for row in rows) or not all(map(any, zip(*rows, strict=True))):
        return None
    return [dict(zip(names, row, strict=True)) for row in rows]


def _ending_at(line: str, edges: Sequence[int]) -> Iterator[str]:
    """Cells that end at places, a space before each; fewer where one does not."""
    for begin, end in pairwise(edges):
        part = line[begin:end]
        if part[0] != " " or (part[-1] == " " and part.strip()):
            return
        yield part.strip()


def one_a_line(lines: Sequence[str]) -> Rows | None:
    """The rows of lines that each name one value, names aligned to the right; None when one of them is another.

    Lines of code that are as far from the edge as each other are none.
    """
    place = max((line.find(" = ") for line in lines[1:3]), default=-1)
    if place < MIN_WIDTH:
        return None
    rows: Rows = [{}]
    indents: set[int] = set()
    for at, line in enumerate(lines):
        if not line.strip():
            rows.append({})
            continue
        name, mark, value = (line[:-2], "=", "") if line[-2:] == " =" else line.partition(" = ")
        if not mark or (len(name) != place if at else len(name) > place) or name[-1:] in ("", " "):
            return None
        if (key := name.strip()) in rows[-1]:
            return None
        rows[-1][key] = value.strip()
        if at:
            indents.add(place - len(key))
    names = list(rows[0])
    sure = len(indents) > 1 and place == max(MIN_WIDTH, *map(len, names))
    return rows if sure and all(list(row) == names for row in rows) else None
