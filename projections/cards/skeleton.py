"""The shape of a JSON result, found again in its facts: objects as rows of cells, arrays of objects as tables.

Objects nested in a row are columns of it (``prices.economy``); arrays of objects in it are tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from projections.cards.facts import SENTENCE, Fact

KEY = "*"
"""Column of a key that is a value."""


@dataclass(slots=True)
class Row:
    """One object. ``path``: where it stands, with indices. ``cells``: values by column, names below the table's.

    ``prose``: the columns whose values are the sentences of a long text.
    """

    path: str
    cells: dict[str, list[str]] = field(default_factory=dict)
    prose: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Table:
    """The rows that stand at one place, such as ``flights``; ``""`` is the top of the document."""

    name: str
    rows: list[Row] = field(default_factory=list)


def tables_of(facts: Iterable[Fact]) -> list[Table]:
    """The tables of a JSON result, in order of appearance."""
    tables: dict[str, Table] = {}
    rows: dict[str, tuple[Row, str]] = {}
    last, row, lead = None, Row(""), ""
    for fact in facts:
        field, record, text = fact
        if record != last:
            last = record
            path, lead = _place(fact)
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
        if SENTENCE in record and _sentence_of(fact):
            row.prose.add(column)
    return list(tables.values())


def _place(fact: Fact) -> tuple[str, str]:
    """Path of the row that a fact stands in, and the names that lead to its table.

    A record ends with the names of nested objects, which are columns of the row and no rows of their own.
    """
    path, names = fact.record, fact.field.split(".") if fact.field else []
    if _is_key(fact, names):
        names.append(KEY)
    elif text := _sentence_of(fact):
        path = text
    elif names:
        names.pop()
    while names and (path == names[-1] or path.endswith(f".{names[-1]}")):
        path = path[: max(0, len(path) - len(names[-1]) - 1)]
        names.pop()
    return path, ".".join(names)


def _is_key(fact: Fact, names: list[str]) -> bool:
    """Whether a fact is the key of its own record: the record is its field's way, and the key."""
    if fact.record == fact.text:
        return not names
    if not names or not fact.record.endswith(f".{fact.text}"):
        return False
    way = fact.record[: -len(fact.text) - 1]
    return names[-1] == KEY or way == names[-1] or way.endswith(f".{names[-1]}") or way[-1:].isdigit()


def _sentence_of(fact: Fact) -> str:
    """The way to the long text that a fact is a sentence of; ``""`` for any other fact."""
    way, sign, number = fact.record.rpartition(SENTENCE)
    return way if sign and number.isdigit() else ""
