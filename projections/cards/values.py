"""Exact value tracing: which values a text or JSON holds, in a form in which equal values are equal text.

A value is an id, a number, a date, a time, a path, an address or a name: something that a later decision either uses
exactly or does not use. Ubiquitous values (true, null, small numbers, bare years) are none, since their turning up
twice says nothing.

Bounds: at most ``MAX_VALUES`` values an event, from at most ``MAX_TEXT`` characters of any one text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from events.strict_json import MAX_DEPTH, deeper_than

MAX_VALUES = 256
MAX_TEXT = 32_768
MAX_PARSED = 262_144
"""Longest text that is tried as JSON, in characters."""

MAX_WORDS = 6
"""A short text of at most so many words is a name as a whole."""

MAX_VALUE = 80
"""Longest value, in characters."""

_UBIQUITOUS = frozenset((
    "true", "false", "null", "none", "nan", "yes", "no", "ok", "okay", "success", "error", "n/a", "unknown", "default",
    "status", "active", "available", "done", "failed", "user", "and", "the", "all", "any", "not", "you", "new",
))  # fmt: skip

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sep sept", "october oct", "november nov", "december dec"), start=1)
    for name in names.split()
}  # fmt: skip

_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))

_TOKEN = re.compile(
    rf"""
      (?P<link>https?://[^\s"'<>]+)
    | (?P<mail>(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{{1,64}}+@[A-Za-z0-9-]{{1,64}}+(?:\.[A-Za-z0-9-]+)+)
    | (?P<date>\d{{4}}-\d{{2}}-\d{{2}}(?:[Tt\ ]\d{{2}}:\d{{2}}(?::\d{{2}})?)?)
    | (?P<clock>(?<!\d)\d{{1,2}}:\d{{2}}(?::\d{{2}})?)
    | (?P<month>(?<![A-Za-z])(?i:{_MONTH})\.?\ \d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\ \d{{4}}\b)?)
    | (?P<month_cjk>(?:\d{{4}}年)?(?<!\d)\d{{1,2}}月\d{{1,2}}[日号])
    | (?P<path>(?<![A-Za-z0-9_.~/\\-])(?:[A-Za-z]:)?(?:[A-Za-z0-9_.~-]{{0,64}}+[/\\]){{1,40}}+[A-Za-z0-9_.-]+)
    | (?P<number>(?<![A-Za-z0-9_.])[-+]?(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d++\.\d+)(?![A-Za-z0-9_]))
    | (?P<id>(?<![A-Za-z0-9_])(?=[A-Za-z0-9][A-Za-z-]{{0,80}}+[0-9_]|[0-9])[A-Za-z0-9_-]*+)
    | (?P<quoted>[“「『《][^”」』》]{{2,60}}[”」』》])
    | (?P<name>(?<![A-Za-z0-9_])[A-Z][A-Za-zÀ-ɏ'’]++(?![0-9_])(?:\ [A-Z][A-Za-zÀ-ɏ'’]++(?![0-9_])){{0,3}})
    """,
    re.VERBOSE,
)
"""Letters are Latin on purpose where a token may stand without spaces in Chinese or Japanese text. Every alternative
starts at the beginning of a word and never gives back what it took, so the scan stays linear in hostile text."""

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[t ].*)?")
_CLAUSES = re.compile("[，。！？；、]")
_DIGITS = re.compile(r"\d\D*\d\D*\d")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_SENTENCE_STARTS = frozenset((
    "i", "i'm", "i'd", "i'll", "the", "this", "that", "it", "it's", "if", "in", "on", "my", "we", "you", "your", "one",
    "please", "sure", "hi", "hello", "yes", "no", "thank", "thanks", "and", "but", "also", "can", "could", "what",
    "how", "when", "do", "for", "there", "they", "he", "she", "is", "are", "to", "as", "at", "of", "a", "an", "let",
    "would", "now", "then", "after",
))  # fmt: skip


def of_json(value: Any) -> list[str]:
    """Values of a JSON value, texts in it that hold JSON included, in order of first appearance, without repeats."""
    found: dict[str, None] = {}
    for leaf in _leaves(parsed(value)):
        for item in _of_leaf(leaf):
            found[item] = None
        if len(found) >= MAX_VALUES:
            break
    return list(found)[:MAX_VALUES]


def of_text(text: str) -> list[str]:
    """Values of prose, in order of first appearance, without repeats."""
    found: dict[str, None] = {}
    for item in _tokens(text):
        found[item] = None
        if len(found) >= MAX_VALUES:
            break
    return list(found)[:MAX_VALUES]


def parsed(value: Any) -> Any:
    """The value that a text holds as JSON object or array, else the value itself. Integers stay exact."""
    if not isinstance(value, str) or len(value) > MAX_PARSED:
        return value
    text = value.strip()
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]") or "\\u0000" in text:
        return value  # a NUL would come to life here, and no store takes it
    if deeper_than(MAX_DEPTH, text.encode()):
        return value
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return value


def _leaves(value: Any, *, nested: bool = False) -> Iterator[Any]:
    """Scalars and telling keys; a text that holds JSON is opened once, not again within itself."""
    if isinstance(value, dict):
        for key, item in value.items():
            if _looks_like_id(key):
                yield key
            yield from _leaves(item, nested=nested)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, nested=nested)
    elif isinstance(value, str) and not nested and (inner := parsed(value)) is not value:
        yield from _leaves(inner, nested=True)
    else:
        yield value


def _looks_like_id(key: str) -> bool:
    return len(key) > 4 and _DIGITS.search(key) is not None


def _of_leaf(leaf: Any) -> Iterator[str]:
    if isinstance(leaf, str):
        stripped = leaf.strip()
        if len(stripped) <= MAX_VALUE and stripped.count(" ") < MAX_WORDS and not _CLAUSES.search(stripped):
            yield from _forms(stripped)
        if " " in stripped or len(stripped) > MAX_VALUE or not stripped.isascii() or "\n" in stripped:
            yield from _tokens(stripped)
    elif leaf is not None and not isinstance(leaf, bool):
        yield from _forms(str(leaf))


def _tokens(text: str) -> Iterator[str]:
    text = text[:MAX_TEXT]
    for match in _TOKEN.finditer(text if text.isascii() else unicodedata.normalize("NFKC", text)):
        token = match[match.lastgroup or 0]
        match match.lastgroup:
            case "month":
                yield from _month(token)
            case "month_cjk":
                yield from _month_cjk(token)
            case "name":
                yield from _name(token)
            case "quoted":
                yield from _forms(token[1:-1])
            case _:
                yield from _forms(token.rstrip(".,;:-"))


def _name(token: str) -> Iterator[str]:
    words = token.split(" ")
    while words and words[0].casefold().replace("’", "'") in _SENTENCE_STARTS:
        words = words[1:]
    if words:
        yield from _forms(" ".join(words))


def _month(token: str) -> Iterator[str]:
    parts = token.replace(".", "").replace(",", "").casefold().split()
    day = re.sub(r"\D", "", parts[1])
    yield from _date(parts[2] if len(parts) == 3 else "", _MONTHS[parts[0]], int(day))


def _month_cjk(token: str) -> Iterator[str]:
    *year, month, day = re.findall(r"\d+", token)
    yield from _date(year[0] if year else "", int(month), int(day))


def _date(year: str, month: int, day: int) -> Iterator[str]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        if year:
            yield f"{year}-{month:02}-{day:02}"
        yield f"--{month:02}-{day:02}"


def _forms(token: str) -> tuple[str, ...]:
    """The normal form of a token, and for a date also the form without its year."""
    return _short_forms(token) if len(token) <= MAX_VALUE else ()


@lru_cache(maxsize=16_384)
def _short_forms(token: str) -> tuple[str, ...]:
    value = normal(token)
    if not value:
        return ()
    date = _DATE.fullmatch(value)
    if not date:
        return (value,)
    day = (f"{date[1]}-{date[2]}-{date[3]}", f"--{date[2]}-{date[3]}")
    return day if len(value) == 10 else (*day, value)


def normal(token: str) -> str:
    """A token in normal form (NFKC, no case, numbers without separators), or ``""`` when it says nothing."""
    text = token if token.isascii() else unicodedata.normalize("NFKC", token)
    text = text.strip().casefold()
    if len(text) > MAX_VALUE or text in _UBIQUITOUS:
        return ""
    if _NUMBER.fullmatch(text):
        return _number(text)
    # two characters are a word in Chinese, and a syllable elsewhere
    return text if len(text) >= (3 if text.isascii() else 2) else ""


def _number(text: str) -> str:
    digits = text.replace(",", "").lstrip("+")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    sign, size = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    if len(size.replace(".", "")) < 3 or (len(size) == 4 and "1900" <= size <= "2100"):
        return ""
    return sign + size
