"""What the form of a text alone says of how likely it is to be used: ids more than dates, dates more than flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from projections.cards.reading.phrases import LONG
from projections.cards.reading.values import in_field, in_text

MODES: Mapping[str, Mapping[str, float]] = {
    "precise_planning": {"id": 1.5, "day": 1.5, "moment": 4.0, "number": 1.2},
    "information_gathering": {"name": 1.5, "prose": 2.0},
    "creative": {"name": 1.5, "prose": 3.0, "id": 0.5, "number": 0.5},
}
"""What a mode of work makes of the forms: a factor each."""

NAME = 40
"""Longest text that is a name or a title; a longer one is prose, in characters."""

SMALL, LONG_NUMBER = 5, 6
"""Characters from which on a number says something by itself, and from which on digits alone are an id."""

PROSE_VALUE, MOST_VALUES = 0.05, 4
"""What a sentence is worth, and as much again for each value in it, up to so many times in all."""

_APART = re.compile(r"[,;]?\s+|[,;]")
_NO_MODE: Mapping[str, float] = {}
_FLAG = re.compile(r"true|false|null|none|yes|no|", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{4}年\d{1,2}月\d{1,2}日")
_MOMENT = re.compile(r"(?:\d{4}-\d{2}-\d{2}[T ])?\d{1,2}:\d{2}[\d:.+-]*(?:Z|(?: ?[AaPp]\.?[Mm]\.?)?(?: ?[A-Z]{2,4})?)")
_MEASURE = re.compile(r"[-+]?[\d.,]+[ -]?[A-Za-z%°\"]{1,5}")
_NUMBER = re.compile(r"[-+]?[\d,]+(?:\.\d+)?")
_ID = re.compile(r"(?=.*\d)[\w@./:#+-]*[\w@/_-][\w@./:#+-]*|[A-Z][A-Z0-9_-]{3,}|[\w.+-]+@[\w.-]+", re.ASCII)
_PATH = re.compile(r"(?:[A-Za-z]:)?[\w.~-]*(?:[/\\][\w.~-]+)+[/\\]?", re.ASCII)


def shape(text: str, mode: str = "") -> float:
    """How likely a value of a field is to be used, before anything is known of the field: 0 to 1."""
    form, likely = _form(text)
    return min(1.0, likely * MODES.get(mode, _NO_MODE).get(form, 1.0))


def sentence(values: int, mode: str = "") -> float:
    """The same of a sentence with so many values that are told nowhere else."""
    return min(1.0, PROSE_VALUE * min(1 + values, MOST_VALUES) * MODES.get(mode, _NO_MODE).get("prose", 1.0))


def telling(text: str) -> bool:
    """Whether a value says something by itself: longer than two characters (one, where it is no ASCII), and no flag."""
    return len(text) > (2 if text.isascii() else 1) and not _FLAG.fullmatch(text)


def names_a_thing(value: str) -> bool:
    """Whether a value in normal form is an id, a path or an address; a day without its year is none."""
    return _form(value)[0] == "id" and not value.startswith("--")


@lru_cache(maxsize=8_192)
def several(text: str) -> tuple[str, ...]:
    """The ids that a value lists, apart by spaces or commas; empty for any other value."""
    if " " not in text and "," not in text:
        return ()
    parts = tuple(_APART.split(text))
    return parts if len(parts) > 1 and all(_form(part)[0] == "id" for part in parts) else ()


def is_prose(field: str, text: str) -> bool:
    """Whether a fact is a sentence rather than a value: of a field, or a line that holds nothing else."""
    return len(text) > LONG or (not field and _form(text)[0] in ("name", "prose"))


def values_of(field: str, text: str) -> tuple[str, ...]:
    """The values in a fact, in normal form."""
    return in_text(text) if is_prose(field, text) else in_field(text)


@lru_cache(maxsize=32_768)
def _form(text: str) -> tuple[str, float]:
    if not telling(text):
        return "flag", 0.01
    if _DAY.fullmatch(text):
        return "day", 0.25
    if _MOMENT.fullmatch(text):
        return "moment", 0.05
    if _MEASURE.fullmatch(text):
        return "number", 0.1
    if _NUMBER.fullmatch(text.rstrip(":")):  # the number of a line, too
        return _of_number(text.rstrip(":"))
    if _ID.fullmatch(text) or _PATH.fullmatch(text):
        return "id", 0.3
    return ("name", 0.2) if len(text) <= NAME else ("prose", 0.1)


def _of_number(text: str) -> tuple[str, float]:
    """A long one of digits alone is an id, one with a fraction a price or a measure."""
    if text.isdigit() and len(text) >= LONG_NUMBER:
        return "id", 0.3
    return "number", 0.1 if len(text) < SMALL else 0.08 if "." in text else 0.25
