"""Texts of ``name: value`` lines, as YAML and many tools write them: objects and arrays whose leaves are texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

MIN_NAMED = 2
"""Lines with a name and a value that a text must have to be read as records."""

MAX_DEPTH = 12

_LINE = re.compile(
    r"""(?P<indent>[ ]*)(?P<dash>-[ ]+)?
        (?:(?P<name>[^\s:：\-\#"'{}\[\]|<>=(][^:："{}\[\]|<>=]{0,39}?)[ ]?(?::(?=[ ]|$)|：)[ ]*)?
        (?P<value>.*)""",
    re.VERBOSE,
)
BOLD = re.compile(r"\*\*([^*]+)\*\*")
"""Words in bold, as Markdown has them."""
_MAX_WORDS = 4


class _Unclear(Exception):
    """The lines are no records."""


class _Line(NamedTuple):
    indent: int
    item: bool
    name: str
    value: str


def records(lines: Sequence[str], least: int = MIN_NAMED) -> Any:
    """The object or array that the lines are, as a whole; None when any is something else, or too few name a value."""
    try:
        read = [_read(line) for line in lines if line.strip()]
        if sum(1 for line in read if line.name and line.value) < least:
            return None
        parts = _paragraphs(lines)
        if len(parts) > 1 and len({part[0].name for part in parts}) == 1:
            return [_whole(part) for part in parts]
        return _whole(read)
    except _Unclear:
        return None


def _read(line: str) -> _Line:
    match = _LINE.fullmatch((BOLD.sub(r"\1", line) if "**" in line else line).rstrip(" \t"))
    if match is None or not (match["name"] or match["dash"]) or (match["name"] or "").count(" ") >= _MAX_WORDS:
        raise _Unclear
    value = match["value"]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return _Line(len(match["indent"]), match["dash"] is not None, match["name"] or "", value)


def _paragraphs(lines: Sequence[str]) -> list[list[_Line]]:
    parts: list[list[_Line]] = [[]]
    for line in lines:
        if line.strip():
            parts[-1].append(_read(line))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _whole(lines: Sequence[_Line]) -> Any:
    value, end = _block(lines, 0, 0)
    if end != len(lines):
        raise _Unclear
    return value


def _block(lines: Sequence[_Line], at: int, depth: int) -> tuple[Any, int]:
    """The array or object that begins at a line, and the line after it."""
    if depth > MAX_DEPTH:
        raise _Unclear
    return _array(lines, at, depth) if lines[at].item else _object(lines, at, depth)


def _array(lines: Sequence[_Line], at: int, depth: int) -> tuple[Any, int]:
    indent, items = lines[at].indent, list[Any]()
    while at < len(lines) and lines[at].indent == indent and lines[at].item:
        if not lines[at].name:
            items.append(lines[at].value)
            at += 1
            continue
        end = at + 1
        while end < len(lines) and lines[end].indent > indent:
            end += 1
        inner = lines[at + 1].indent if end > at + 1 else indent + 2
        # the first member stands behind the dash, in a column with the others
        value, _ = _block_of([lines[at]._replace(indent=inner, item=False), *lines[at + 1 : end]], depth)
        items.append(value)
        at = end
    return _as_object(items), at


def _as_object(items: list[Any]) -> Any:
    """Items that are one ``name: value`` each, each with a name of its own, are the members of an object."""
    if len(items) > 1 and all(isinstance(item, dict) and len(item) == 1 for item in items):
        names = [name for item in items for name in item]
        if len(set(names)) == len(names):
            return {name: value for item in items for name, value in item.items()}
    return items


def _block_of(lines: Sequence[_Line], depth: int) -> tuple[Any, int]:
    value, end = _block(lines, 0, depth + 1)
    if end != len(lines):
        raise _Unclear
    return value, end


def _object(lines: Sequence[_Line], at: int, depth: int) -> tuple[dict[str, Any], int]:
    indent, members = lines[at].indent, dict[str, Any]()
    while at < len(lines) and lines[at].indent == indent and not lines[at].item:
        name, value, at = lines[at].name, lines[at].value, at + 1
        if not name or name in members:
            raise _Unclear  # nothing may be lost
        nested = at < len(lines) and (lines[at].indent > indent or (lines[at].item and lines[at].indent == indent))
        if nested and value:
            raise _Unclear
        members[name] = value
        if nested:
            members[name], at = _block(lines, at, depth + 1)
    return members, at
