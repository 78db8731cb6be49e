"""Texts of records that have heads: numbers, words with numbers, titles between rules, or rules alone.

    1. Name: Ada              Record 1 of 2            --- Contact 1 ---        == Customer ==
       Email: ada@x.example   Name: Ada                Name: Ada                name = Ada

Each block is an object. Numbers that count from 0 or 1 are left out, since records have places anyway; words before
them name the records; other titles are names. Only where every line is a head or names a value: counted blocks
have a name in common besides, and all other texts are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from projections.cards.reading.fields import bulleted, with_colons
from projections.cards.reading.records import BOLD, MIN_NAMED, records

TITLE = "title"
"""The name of what a head tells besides its number."""

MAX_HEAD = 120
"""Longest line that is a head, in code points."""

_NUMBER = r"(?:(?P<dot>\d{1,6})[.)]|\[(?P<box>\d{1,6})\]|\#(?P<hash>\d{1,6})[.:)]?)"
_NUMBERED = re.compile(rf"{_NUMBER}(?:[ ]+(?P<rest>\S.*))?", re.VERBOSE)
_WORDED = re.compile(r"(?P<word>[^\W\d_][^\W\d]{0,30}(?: [^\W\d]+)?) ?#?(?P<number>\d{1,6})(?: ?(?:of|/) ?\d+)?[:：.]?")
_RULED = re.compile(r"(?P<rule>[-=*#~_])(?P=rule)+[ ]*(?P<title>[^\s=*#~_-](?:.*[^\s=*#~_-])?)[ ]*(?P=rule){2,}")
_BRACKETED = re.compile(r"\[(?P<title>[^\W\d_][\w .:-]{0,60})\]")
_ROW = re.compile(r"(?P<number>\d{1,6})\. row")
_RULE = re.compile(r"(?:-{3,}|={3,}|\*{3,}|_{3,}|~{3,})\s*")
_RULES = ("---", "===", "***", "___", "~~~")
_FIELD = re.compile(r"(?P<name>[^\s:：\"'{}\[\]|<>=(][^:：\"{}\[\]|<>=]{0,39}?) ?(?::(?= )|：) *(?P<value>\S.*)")
_SIGNS = frozenset("0123456789[#-=*~_")
_NUMBERS = ("dot", "box", "hash")


class _Head(NamedTuple):
    """``kind``: how the number stands there, ``row``, or the word before it; ``""`` for a title without a number."""

    kind: str
    number: int
    title: str


def blocks(lines: Sequence[str]) -> Any:
    """The records of a text with heads; ``[words, records]`` where a line of words stands before; else None.

    Such a line ends with a colon, or nothing follows it.
    """
    begin = _first(lines)
    if (held := _headed(lines[begin:]) or _between_rules(lines[begin:])) is not None:
        return held
    rest = lines[begin + 1 :]
    if not rest or (rest[0].strip() and lines[begin].rstrip()[-1:] not in (":", "：")):
        return None
    held = _headed(rest[_first(rest) :])
    return None if held is None else [lines[begin].strip(), held]


def _first(lines: Sequence[str]) -> int:
    """The place of the first line that is not blank."""
    return next((at for at, line in enumerate(lines) if line.strip()), len(lines))


def _headed(lines: Sequence[str]) -> Any:
    """The records of lines that begin with a head; None when they do not, or some line of a block names no value."""
    first = _head(lines[0]) if lines else None
    if first is None:
        return None
    heads, bodies = [first], list[list[str]]([[]])
    for line in lines[1:]:
        head = _head(line)
        if head is not None and _goes_on(heads, head):
            heads.append(head)
            bodies.append([])
        else:
            bodies[-1].append(line)
    told = [_object(head, body) for head, body in zip(heads, bodies, strict=True)]
    objects = [value for value in told if value]
    return _joined(heads, objects) if len(objects) == len(heads) else None


def _head(line: str) -> _Head | None:
    """What a line is as a head, be it bold; None when it is none."""
    text = line.strip()
    if (
        not line[:4].strip()
        or len(text) > MAX_HEAD
        or not (text[0] in _SIGNS or text[-1].isdigit() or text[-2:-1].isdigit())
    ):
        return None
    head = None if text[:2] == "**" and text[-2:] == "**" and text[2:3] not in "* " else _plain_head(text)
    return _plain_head(BOLD.sub(r"\1", text)) if head is None and "**" in text else head


def _plain_head(text: str) -> _Head | None:
    if match := _NUMBERED.fullmatch(text):
        kind = next(kind for kind in _NUMBERS if match[kind])
        return _Head(kind, int(match[kind]), BOLD.sub(r"\1", match["rest"] or ""))
    if match := _WORDED.fullmatch(text):
        return _Head(match["word"], int(match["number"]), "")
    if match := _RULED.fullmatch(text) or _BRACKETED.fullmatch(text):
        title = match["title"]
        if row := _ROW.fullmatch(title):
            return _Head("row", int(row["number"]), "")
        word = _WORDED.fullmatch(title)
        return _Head(word["word"], int(word["number"]), "") if word else _Head("", 0, title)
    return None


def _goes_on(heads: Sequence[_Head], head: _Head) -> bool:
    """Whether a head is one more of those before; bare numbers count."""
    before = heads[-1]
    return head.kind == before.kind and (head.kind not in _NUMBERS or head.number == before.number + 1)


def _object(head: _Head, body: Sequence[str]) -> Any:
    """What a block says; None when some line of it names no value."""
    told: dict[str, Any] = {}
    if head.kind in _NUMBERS and head.title:
        title = (with_colons([head.title]) or [head.title])[0]
        told = _read([title]) if _FIELD.fullmatch(title) else {TITLE: head.title}
    if not any(map(str.strip, body)):
        return told
    value = _read(body)
    if head.kind == "" or value is None:
        return value
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # one member behind a bullet
    return told | value if isinstance(value, dict) and not told.keys() & value.keys() else None


def _read(lines: Sequence[str]) -> Any:
    lines = bulleted(lines)
    return records(with_colons(lines) or lines, 1)


def _joined(heads: Sequence[_Head], objects: list[Any]) -> Any:
    """The blocks as one value; None when they have too little in common to be sure."""
    kind, numbers = heads[0].kind, [head.number for head in heads]
    counted = numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if kind in (*_NUMBERS, "row"):
        return objects if counted and _alike(objects) else None
    if sum(map(len, objects)) < MIN_NAMED:
        return None
    if kind and counted:
        return {kind: objects} if _alike(objects) else None
    titles = [head.title or f"{kind} {head.number}" for head in heads]
    return dict(zip(titles, objects, strict=True)) if len(set(titles)) == len(titles) else None


def _alike(objects: Sequence[dict[str, Any]]) -> bool:
    """Whether objects have a name in common; one alone has to have several."""
    if len(objects) == 1:
        return len(objects[0].keys() - {TITLE}) >= MIN_NAMED
    counts = Counter(name for each in objects for name in each if name != TITLE)
    return max(counts.values(), default=0) > 1


def _between_rules(lines: Sequence[str]) -> Any:
    """The records that lines of nothing but a rule keep apart."""
    if not any(line[:3] in _RULES for line in lines):
        return None
    parts: list[list[str]] = [[]]
    for line in lines:
        if line[:3] in _RULES and _RULE.fullmatch(line):
            parts.append([])
        else:
            parts[-1].append(line)
    told = [part for part in parts if any(map(str.strip, part))]
    if len(told) < MIN_NAMED:
        return None
    objects = [value for part in told if isinstance(value := _read(part), dict)]
    return objects if len(objects) == len(told) and _alike(objects) else None
