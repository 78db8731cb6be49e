"""Texts that are tables or records, read as what they mean and spelled as they are.

* Markdown tables, and tables with tabs, with less prose around them than they are long;
* texts that are a table as a whole: with commas, with semicolons, with columns two spaces apart;
* texts that are ``name: value`` lines as a whole, indented and with ``-`` as in YAML, or in paragraphs.

The answer is like JSON whose leaves are texts; a table is an array of objects. What is not surely one of these stays a
text: every line of a table has the same number of cells, and the first one reads as names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from projections.cards.records import records

MAX_LINES = 2_000
"""A text of more lines stays a text."""

MIN_ROWS = 2
MAX_COLUMNS = 64
MAX_NAME = 40
MAX_WORDS = 4

_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")
_GAP = re.compile(r" {2,}|\t+")
_PIPE = re.compile(r"(?<!\\)\|")
_NO_NAME = re.compile(r"\d|.*[.!?。！？,;]$|.*[{}<>=\"]")

Cells = list[str]


def structured(text: str) -> Any:
    """The tables or records that a text is, an array of texts and tables where it has both; None for any other text."""
    if text.count("\n") not in range(1, MAX_LINES):
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    for mark, split in ((",", _by_commas), (";", _by_semicolons), ("  ", _by_gaps)):
        if lines and mark in lines[0] and (table := _table(lines, split)) is not None and _is_compact(table):
            return table
    if "|" in text or "\t" in text:
        parts = list(_parts(text.splitlines()))
        prose = sum(len(part) for part in parts if isinstance(part, str))
        if 2 * prose < len(text) and any(not isinstance(part, str) for part in parts):
            return parts[0] if len(parts) == 1 else parts
    return records(text.splitlines())


def _by_commas(line: str) -> Cells:
    return _csv(line, ",")


def _by_semicolons(line: str) -> Cells:
    return _csv(line, ";")


def _csv(line: str, delimiter: str) -> Cells:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return []


def _by_gaps(line: str) -> Cells:
    return _GAP.split(line.strip())


def _by_tabs(line: str) -> Cells:
    return line.split("\t")


def _by_pipes(line: str) -> Cells:
    return _PIPE.split(line.strip().removeprefix("|").removesuffix("|"))


def _table(lines: Sequence[str], split: Callable[[str], Cells]) -> list[dict[str, str]] | None:
    """The rows of lines that are all of one table, the first its names; None when they are not."""
    if len(lines) <= MIN_ROWS:
        return None
    names = [name.strip() for name in split(lines[0])]
    if not _are_names(names):
        return None
    rows: list[dict[str, str]] = []
    for line in lines[1:]:
        cells = split(line)
        if len(cells) != len(names):
            return None
        rows.append({name: cell.strip() for name, cell in zip(names, cells, strict=True)})
    return rows


def _is_compact(rows: Sequence[dict[str, str]]) -> bool:
    """Whether half of the columns hold single words in every row: lines of prose may have as many commas, too."""
    compact = sum(all(row[name] and " " not in row[name] for row in rows) for name in rows[0])
    return 2 * compact >= len(rows[0])


def _are_names(names: Sequence[str]) -> bool:
    """Whether cells read as the names of columns: short, distinct, no numbers and no sentences."""
    if not 2 <= len(names) <= MAX_COLUMNS or len(set(names)) != len(names):
        return False
    return all(0 < len(name) <= MAX_NAME and name.count(" ") < MAX_WORDS and not _NO_NAME.match(name) for name in names)


def _parts(lines: Sequence[str]) -> Iterator[Any]:
    """A text as its tables, and as the texts between them."""
    prose: list[str] = []
    at = 0
    while at < len(lines):
        end, table = _table_at(lines, at)
        if table is None:
            prose.append(lines[at])
            at += 1
            continue
        if text := "\n".join(prose).strip():
            yield text
        prose = []
        yield table
        at = end
    if text := "\n".join(prose).strip():
        yield text


def _table_at(lines: Sequence[str], at: int) -> tuple[int, list[dict[str, str]] | None]:
    """The table that begins at a line, and where it ends."""
    if "|" in lines[at] and at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1]):
        end = _while(lines, at + 2, "|")
        body = [lines[at], *lines[at + 2 : end]]
        return end, _table(body, _by_pipes) if len(body) > MIN_ROWS else _pair(body)
    if "\t" in lines[at]:
        end = _while(lines, at, "\t")
        return end, _table(lines[at:end], _by_tabs)
    return at, None


def _pair(body: Sequence[str]) -> list[dict[str, str]] | None:
    """A table of one row, which its rule makes sure of."""
    if len(body) != MIN_ROWS:
        return None
    names, cells = ([cell.strip() for cell in _by_pipes(line)] for line in body)
    return [dict(zip(names, cells, strict=True))] if len(names) == len(cells) and _are_names(names) else None


def _while(lines: Sequence[str], at: int, mark: str) -> int:
    while at < len(lines) and mark in lines[at]:
        at += 1
    return at
