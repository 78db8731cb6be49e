"""Facts: what a result or a message says, value by value, each with its name and the record that it stands in.

JSON, also JSON, tables and records in a text (``opening``), and such a text within them, give one fact a leaf, spelled
as it was written: whole numbers of any length stay exact; a number with a fraction keeps its zeros where it came inside
a text, while inside an event's own JSON the door has already written it in its shortest form. A long text in a field
gives one fact a sentence. Anything else is prose: one fact a sentence or line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import regex

from projections.bounds import canonical, short
from projections.cards.reading import columns
from projections.cards.reading.opening import read
from projections.cards.reading.prose import sentences

MAX_FACTS = 2_048
"""Facts of one value, at most; later ones are left out."""

MAX_TEXT = 65_536
"""Prose is read so far, in code points."""

MAX_PARSED = 262_144
"""Longest text that is tried as JSON, in code points."""

SHORT = 240
"""A text leaf up to this length, without a line break, is one value; a longer one is prose, in code points."""

MAX_NAME = 64
"""Longest key that is a name, in code points."""

SENTENCE = "#"
"""Stands before the number of a sentence in the record of a fact from a long text in a field."""

MAX_WAY = 800
"""Code points of field and record beyond which the way to an object is named by its head and digest."""

_OPENING = ("", "{", "[", "<")
_LIKE_IDS = regex.compile(r"\d\D*\d\D*\d|[@/\\:]|^\d+$")
_WORDS = {None: "null", True: "true", False: "false"}


class Fact(NamedTuple):
    """One value.

    ``field``: the names on the way to it, joined by ``.``, indices left out; ``""`` in prose. A key that is itself a
    value (an id as a key) is no name: it stands as ``*`` in the fields below it, and is a fact of its own.
    ``record``: the object around it, with indices (``flights.1``); of a key that is a value, and of what stands under
    it, the way with that key; in an array of arrays the inner array; in prose the number of the sentence, from 0; in a
    long text of a field the way to it, ``#`` and that number.
    ``text``: the value as it was written; in prose the whole sentence or line.
    """

    field: str
    record: str
    text: str


_fact: Callable[[tuple[str, str, str]], Fact] = partial(tuple.__new__, Fact)
"""As ``Fact(...)``, at half the cost: there are dozens of an event."""


def facts_of(value: Any) -> list[Fact]:
    """The facts of a value in order of appearance, at most ``MAX_FACTS``."""
    return facts_in(opened(value))


def facts_in(value: Any) -> list[Fact]:
    """The facts of a value that is ``opened`` already."""
    facts: list[Fact] = []
    if isinstance(value, dict):
        _object(value, "", "", facts)
    elif isinstance(value, list):
        _array(value, "", "", "", facts)
    elif isinstance(value, str):
        facts = [_fact(("", str(n), text)) for n, text in enumerate(islice(sentences(value[:MAX_TEXT]), MAX_FACTS))]
    else:
        facts = [Fact("", "", spelled(value))]
    return facts[:MAX_FACTS]


def opened(value: Any) -> Any:
    """What a text holds as JSON, as a table or as records (``opening``), all spelled as they were; else the value."""
    if not isinstance(value, str) or len(value) > MAX_PARSED:
        return value
    held = read(value)
    return value if held is None else held


def _object(value: dict[str, Any], field: str, path: str, facts: list[Fact], inner: bool = False) -> None:
    """The facts of an object: of each member, and of each key that is a value. Reading stops once there are enough."""
    if len(field) + len(path) > MAX_WAY:
        field, path = short(field), short(path)
    way, alike = f"{path}." if path else "", _alike(value)
    for key, item in value.items():
        if len(key) > MAX_NAME:
            _leaf(key, field, way + short(key), way + short(key), facts, True)
            key, record, name = short(key), way + short(key), _below(field, "*")
        elif alike or _like_an_id(key):
            record, name = way + key, _below(field, "*")
            facts.append(_fact((field, record, key)))
        else:
            record, name = path, _below(field, key)
        if type(item) is str and len(item) <= SHORT and item[:1] not in _OPENING and "\n" not in item:
            facts.append(_fact((name, record, item)))
        elif isinstance(item, dict):
            _object(item, name, way + key, facts, inner)
        elif isinstance(item, list):
            names = columns.named_by_sibling(value, item) if item and type(item[0]) is list else None
            _array(item, name, way + key, record, facts, inner, names)
        else:
            _leaf(item, name, way + key, record, facts, inner)
        if len(facts) >= MAX_FACTS:
            return


def _array(
    value: list[Any], field: str, path: str, record: str, facts: list[Fact], inner: bool = False,
    names: list[str] | None = None,
) -> None:  # fmt: skip
    """The facts of an array: scalars in it belong to ``record``, the object or array around it. ``names``: of cells."""
    way, first = f"{path}." if path else "", 0
    if names is None and value and type(value[0]) is list:
        names, first = columns.named(value) or (None, 0)
    for place, item in enumerate(value[first:] if first else value):
        if names:
            item = dict(zip(names, item, strict=True))
        if isinstance(item, dict):
            _object(item, field, f"{way}{place}", facts, inner)
        elif isinstance(item, list):
            _array(item, field, f"{way}{place}", f"{way}{place}", facts, inner)
        else:
            _leaf(item, field, f"{way}{place}", record, facts, inner)
        if len(facts) >= MAX_FACTS:
            return


def _leaf(value: Any, field: str, path: str, record: str, facts: list[Fact], inner: bool = False) -> None:
    """A scalar: one fact. A text may hold JSON (opened once, not again within), or be prose: a fact a sentence."""
    if not isinstance(value, str):
        facts.append(_fact((field, record, spelled(value))))
        return
    held = value if inner else opened(value)
    if isinstance(held, dict):
        _object(held, field, path, facts, True)
    elif isinstance(held, list):
        _array(held, field, path, record, facts, True)
    elif len(value) > SHORT or "\n" in value:
        texts = islice(sentences(value[:MAX_TEXT]), MAX_FACTS - len(facts))
        facts.extend(Fact(field, f"{path}{SENTENCE}{n}", text) for n, text in enumerate(texts))
    elif value:
        facts.append(_fact((field, record, value)))


def spelled(value: Any) -> str:
    """A value as JSON writes it, a text as it stands."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return str(value) if isinstance(value, (str, int, float)) else canonical(value)


@lru_cache(maxsize=8_192)
def _below(field: str, key: str) -> str:
    """The name of a member. One text for all that is called so, which costs less wherever it is looked up."""
    return f"{field}.{key}" if field else key


@lru_cache(maxsize=8_192)
def _like_an_id(key: str) -> bool:
    """Whether a key looks like an id, a number, a date, an address or a path rather than like a name."""
    return _LIKE_IDS.search(key) is not None and (len(key) > 4 or key.isdigit())


def _alike(value: dict[str, Any]) -> bool:
    """Whether an object is a table of objects with the same members, so that its keys tell its rows apart."""
    if len(value) < 3:
        return False
    rows = iter(value.values())
    first = next(rows)
    return (
        isinstance(first, dict)
        and bool(first)
        and all(isinstance(row, dict) and row.keys() == first.keys() for row in rows)
    )
