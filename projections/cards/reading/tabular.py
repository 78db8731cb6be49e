"""Texts that are tables or records, read as what they mean and spelled as they are.

* tables in Markdown, with tabs or with commas, and records, with less prose around them than they are long;
* texts that are a table as a whole: with commas, with semicolons, with columns two spaces apart;
* texts that databases and data tools print as tables (``grids``);
* texts of lines that one well-known tool writes, as ``path:line: words`` (``lines``);
* texts whose every line names the same values (``pairs``);
* texts that are ``name: value`` lines as a whole, indented and with ``-`` as in YAML, or in paragraphs; also with
  ``=``, dots or space in place of the colon (``fields``), and with heads or rules between records (``blocks``).

The answer is like JSON whose leaves are texts; a table is an array of objects. What is not surely one of these stays a
text: every line of a table has the same number of cells, and the first one reads as names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from projections.cards.reading.blocks import blocks
from projections.cards.reading.fields import with_colons
from projections.cards.reading.grids import grid, one_a_line
from projections.cards.reading.lines import told_alike
from projections.cards.reading.pairs import pairs
from projections.cards.reading.records import records

MAX_LINES = 2_000
"""A text of more lines stays a text."""

MIN_ROWS = 2
MAX_COLUMNS = 64
MAX_NAME = 40
MAX_WORDS = 4

_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")
_HEADING = re.compile(
    r"#{1,6}[ ]+(.{1,40}?)[ :：]*|[ ]{0,3}(?:\*\*)?([^\s:：#|,\-][^:：|,]{0,39}?)(?:\*\*)?[:：](?:\*\*)?[ ]*"
)
_NAMED = re.compile(r"[:：]|^ *- ")
_GAP = re.compile(r" {2,}|\t+")
_PIPE = re.compile(r"(?<!\\)\|")
_NO_NAME = re.compile(r"\d|.*[.!?。！？,;]$|.*[{}<>=\"]")

Cells = list[str]


def structured(text: str) -> Any:
    """The tables or records that a text is, an array of texts and tables where it has both; None for any other text."""
    if text.count("\n") not in range(1, MAX_LINES):
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if (told := told_alike(lines)) is not None:
        return told
    if (printed := grid(lines)) is not None:
        return printed
    if (rows := pairs(lines)) is not None:
        return rows
    lines_with_gaps = text.splitlines()
    if (rows := one_a_line(lines_with_gaps)) is not None:
        return rows
    if (held := blocks(lines_with_gaps)) is not None:
        return held
    if (named := with_colons(lines_with_gaps)) is not None and (held := records(named)) is not None:
        return held
    for mark, split in ((",", _by_commas), (";", _by_semicolons), ("  ", _by_gaps)):
        if lines and mark in lines[0] and (table := _table(lines, split)) is not None and _is_compact(table):
            return table
    if (whole := records(lines_with_gaps)) is not None:
        return whole
    parts = list(_parts(lines_with_gaps))
    prose = sum(len(part) for part in parts if isinstance(part, str))
    if 2 * prose >= len(text) or all(isinstance(part, str) for part in parts):
        return None
    return parts[0] if len(parts) == 1 else _one_object(parts)


def _one_object(parts: list[Any]) -> Any:
    """Parts that are objects with members of their own are one object; others stay side by side."""
    names = [name for part in parts if isinstance(part, dict) for name in part]
    if all(isinstance(part, dict) for part in parts) and len(set(names)) == len(names):
        return {name: value for part in parts for name, value in part.items()}
    return parts


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
    if not _are_names(names) or (split is _by_gaps and names[0][-1] in ":："):
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
    """A text as its tables and records, and as the texts between them; what stands below a heading bears its name."""
    prose: list[str] = []
    at = 0
    while at < len(lines):
        end, part = _part_at(lines, at)
        if part is None:
            prose.append(lines[at])
            at += 1
            continue
        if text := "\n".join(prose).strip():
            yield text
        prose = []
        yield part
        at = end
    if text := "\n".join(prose).strip():
        yield text


def _part_at(lines: Sequence[str], at: int) -> tuple[int, Any]:
    """The table or records that begin at a line, and where they end; None where it is neither."""
    line = lines[at]
    if heading := _heading(line):
        begin = next((n for n in range(at + 1, min(at + 3, len(lines))) if lines[n].strip()), at)
        end, part = _table_at(lines, begin, named=True) if begin > at else (at, None)
        if part is not None:
            return end, {(heading[1] or heading[2]).strip(): part}
    end, table = _table_at(lines, at)
    if table is not None:
        return end, table
    if _NAMED.search(line) and (at == 0 or not lines[at - 1].strip() or _heading(lines[at - 1])):
        end = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
        return end, records(lines[at:end])
    return at, None


def _heading(line: str) -> re.Match[str] | None:
    """A line that is a heading, in Markdown or by the colon that ends it."""
    return _HEADING.fullmatch(line) if line[:1] == "#" or line.rstrip("* ")[-1:] in (":", "：") else None


def _table_at(lines: Sequence[str], at: int, named: bool = False) -> tuple[int, list[dict[str, str]] | None]:
    """The table that begins at a line, and where it ends. ``named``: a heading stands before it, one row is enough."""
    if "|" in lines[at] and at + 1 < len(lines) and _RULE.fullmatch(lines[at + 1]):
        end = _while(lines, at + 2, "|")
        body = [lines[at], *lines[at + 2 : end]]
        return end, _table(body, _by_pipes) if len(body) > MIN_ROWS else _pair(body, _by_pipes)
    if "\t" in lines[at]:
        end = _while(lines, at, "\t")
        return end, _table(lines[at:end], _by_tabs)
    if "," in lines[at] and at + 1 < len(lines) and lines[at].count(",") <= lines[at + 1].count(","):
        end = _while(lines, at, ",")
        body = list(lines[at:end])
        table = _table(body, _by_commas) if len(body) > MIN_ROWS else _pair(body, _by_commas) if named else None
        return end, table if table and _is_compact(table) else None
    return at, None


def _while(lines: Sequence[str], at: int, mark: str) -> int:
    """The first line from ``at`` on that lacks a mark."""
    return next((n for n in range(at, len(lines)) if mark not in lines[n]), len(lines))


def _pair(body: Sequence[str], split: Callable[[str], Cells]) -> list[dict[str, str]] | None:
    """A table of one row, which its rule or heading makes sure of."""
    if len(body) != MIN_ROWS:
        return None
    names, cells = ([cell.strip() for cell in split(line)] for line in body)
    return [dict(zip(names, cells, strict=True))] if len(names) == len(cells) and _are_names(names) else None
