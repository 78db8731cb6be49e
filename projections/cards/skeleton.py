"""The shape of a JSON result, found again in its facts: objects as rows of cells, arrays of objects as tables.

Objects nested in a row are columns of it (``prices.economy``); arrays of objects in it are tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as with_default
from functools import lru_cache

from projections.cards.reading.facts import SENTENCE, Fact

KEY = "*"
"""Column of a key that is a value."""


@dataclass(slots=True)
class Row:
    """One object. ``path``: where it stands, with indices. ``cells``: values by column, names below the table's.

    ``prose``: the columns whose values are the sentences of a long text.
    """

    path: str
    cells: dict[str, list[str]] = with_default(default_factory=dict)
    prose: set[str] = with_default(default_factory=set)


@dataclass(slots=True)
class Table:
    """The rows that stand at one place, such as ``flights``; ``""`` is the top of the document."""

    name: str
    rows: list[Row] = with_default(default_factory=list)


def tables_of(facts: Iterable[Fact]) -> list[Table]:
    """The tables of a JSON result, in order of appearance."""
    tables: dict[str, Table] = {}
    rows: dict[str, tuple[Row, str]] = {}
    last, row, lead, prose = None, Row(""), "", False
    for fact in facts:
        field, record, text = fact
        if record != last:
            last, prose = record, SENTENCE in record and bool(_text_of(record))
            path, lead = _place(field, record, _is_key(fact))
            if path in rows:
                row, lead = rows[path]
            else:
                row = Row(path)
                rows[path] = (row, lead)
                tables.setdefault(lead, Table(lead)).rows.append(row)
        column = field if not lead else field[len(lead) + 1 :] or KEY
        if column in row.cells:
            row.cells[column].append(text)
        else:
            row.cells[column] = [text]
        if prose:
            row.prose.add(column)
    return list(tables.values())


@lru_cache(maxsize=8_192)
def _place(field: str, record: str, is_key: bool) -> tuple[str, str]:
    """Path of the row that a fact stands in, and the names that lead to its table.

    A record ends with the names of nested objects, which are columns of the row and no rows of their own.
    """
    path, names = record, field.split(".") if field else []
    if is_key:
        names.append(KEY)
    elif SENTENCE in record and (text := _text_of(record)):
        path = text
    elif names:
        names.pop()
    while names and (path == names[-1] or path.endswith(f".{names[-1]}")):
        path = path[: max(0, len(path) - len(names[-1]) - 1)]
        names.pop()
    return path, ".".join(names)


def _is_key(fact: Fact) -> bool:
    """Whether a fact is the key of its own record: the record is its field's way, and the key."""
    field, record, text = fact
    if not record.endswith(text):
        return False
    if record == text:
        return not field
    last, way = field.rpartition(".")[2], record[: -len(text)].removesuffix(".")
    if not field or len(way) + len(text) == len(record):
        return False
    return last == KEY or way == last or way.endswith(f".{last}") or way[-1:].isdigit()


def _text_of(record: str) -> str:
    """The way to the long text that a fact is a sentence of; ``""`` for the record of any other fact."""
    way, sign, number = record.rpartition(SENTENCE)
    return way if sign and number.isdigit() else ""
