"""What a text holds: JSON in its many dresses, XML, a table, records. Values keep the spelling that they have in it.

JSON alone, fenced as a code block, behind some words (``Result: {...}``), or a document a line; what Python's ``str()``
writes of a dict or list, or of tuples a line; XML in these places (``markup``); a table or records (``tabular``).
Anything else is a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from events.strict_json import MAX_DEPTH, deeper_than
from projections.cards.reading.markup import elements
from projections.cards.reading.tabular import structured

MAX_LEAD = 400
"""Longest words before JSON or XML, in code points."""

MIN_TUPLES = 2
"""How many lines are surely tuples that Python printed."""

_FENCED = re.compile(r"```[A-Za-z0-9_-]*+\n(.*)\n```", re.DOTALL)
_BEGINS = re.compile(r"(?:\n|:\s|：)\s*(?=[\[{])")
_BEGINS_XML = re.compile(r"(?:\n|:\s|：)\s*(?=<[\w?])")
_PYTHON = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")|(?P<word>True|False|None)
        |(?P<number>-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?)|(?P<mark>[\[\]{}(),:]))\s*""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_decoder = msgspec.json.Decoder(float_hook=str)
_quoted = msgspec.json.Encoder().encode


def read(text: str) -> Any:
    """The array or object that a text holds; where words stand before it ``[words, value]``; None for other texts."""
    text = text.strip()
    if text[-3:] == "```" and (fenced := _FENCED.fullmatch(text)):
        text = fenced[1].strip()
    held = None
    match text[-1:]:
        case "}" | "]":
            held = _behind_words(text, "[{", _BEGINS, _document)
            if text[0] in "[{":
                return held
        case ")":
            held = _tuples(text)
        case ">":
            held = _behind_words(text, "<", _BEGINS_XML, elements)
    return structured(text) if held is None else held


def _behind_words(text: str, signs: str, begins: re.Pattern[str], held_by: Callable[[str], Any]) -> Any:
    """The value that a text is from its first sign on, or behind words; None where there is none."""
    if text[0] in signs:
        return held_by(text)
    begin = begins.search(text, 0, MAX_LEAD)
    value = held_by(text[begin.end() :]) if begin else None
    return None if begin is None or value is None else [text[: begin.start() + 1].strip(), value]


def _document(text: str) -> Any:
    """The JSON document, or the documents in lines, or what Python wrote; None when the text is none of these."""
    if "\\u0000" in text or deeper_than(MAX_DEPTH, text.encode("utf-8", "surrogatepass")):
        return None  # a NUL would come to life here, and no store takes it
    for decode in (_decoder.decode, _decoder.decode_lines, _of_python):
        try:
            return decode(text)
        except (msgspec.DecodeError, UnicodeError):
            continue
    return None


def _tuples(text: str) -> Any:
    """What Python printed of tuples, one a line; None where a line is none."""
    lines = text.splitlines()
    if len(lines) < MIN_TUPLES or not all(line[:1] == "(" and "," in line and line[-1:] == ")" for line in lines):
        return None
    return _document(f"[{','.join(lines)}]")


def _of_python(text: str) -> Any:
    """What ``str()`` wrote of a dict or list. Raises DecodeError where it is something else."""
    parts: list[str] = []
    at = 0
    for token in _PYTHON.finditer(text):
        if token.start() != at:
            break
        at = token.end()
        if token["text"]:
            parts.append(_quoted(_ESCAPE.sub(_unescaped, token["text"][1:-1])).decode())
        else:
            part = token[token.lastgroup or 0]
            if part in ")]}" and parts and parts[-1] == ",":
                parts.pop()
            parts.append(_WORDS.get(part, part))
    if at != len(text):
        raise msgspec.DecodeError("no literal")
    return _decoder.decode("".join(parts))


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return _ESCAPED.get(match[4], match[4] if match[4] in "\\'\"" else match[0])
    number = int(code, 16)
    return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else match[0]
