"""Rows that are arrays of cells, under names that stand once: as databases and spreadsheets answer.

    {"columns": ["id", "name"], "rows": [[7, "Ada"], [9, "Bo"]]}       [["id", "name"], [7, "Ada"], [9, "Bo"]]

The names stand in another member of the object, or in the first row where that alone reads as names. Where nobody names
them, cells are ``column 1`` and so on: those side by side mean different things.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MIN_COLUMNS, MAX_COLUMNS = 2, 256
MAX_NAME = 64
"""Longest name of a column, in code points."""

_NAMES_IT = ("name", "column", "field", "title", "label", "id", "key")
"""Members of the description of a column that may name it, the first that is there."""

_NO_NAME = re.compile(r".*\d{3}|[\d+-]|.*[@/\\{}<>=\"]|.*[.!?。！？;]$", re.DOTALL)


def named_by_sibling(members: Mapping[str, Any], rows: list[Any]) -> list[str] | None:
    """The names of the cells of rows that are a member of an object; None when no other member names them."""
    width = _width(rows)
    if not width:
        return None
    for other in members.values():
        if type(other) is list and other is not rows and len(other) == width and (names := _names(other)):
            return names
    return None


def named(rows: list[Any]) -> tuple[list[str], int] | None:
    """The names of the cells of rows by themselves, and where the first row of values is; None: they are no rows."""
    width = _width(rows)
    if width < MIN_COLUMNS:
        return None
    names = _names(rows[0])
    if (
        names is not None
        and all(map(_reads_as_name, names))
        and any(type(cell) is not str or not _reads_as_name(cell) for row in rows[1:] for cell in row)
    ):
        return names, 1
    return [f"column {place}" for place in range(1, width + 1)], 0


def _width(rows: list[Any]) -> int:
    """How many cells every row has; 0 when they are no rows."""
    width = len(rows[0]) if type(rows[0]) is list else 0
    return width if 0 < width <= MAX_COLUMNS and all(type(row) is list and len(row) == width for row in rows) else 0


def _names(cells: Iterable[Any]) -> list[str] | None:
    """Different names, given as texts or as objects that tell a name; None for anything else."""
    names = [_name(cell) for cell in cells]
    return names if all(names) and len(set(names)) == len(names) else None


def _name(cell: Any) -> str:
    if isinstance(cell, dict):
        cell = next((cell[key] for key in _NAMES_IT if key in cell), None)
    return cell if isinstance(cell, str) and len(cell) <= MAX_NAME else ""


def _reads_as_name(text: str) -> bool:
    return bool(text) and len(text) <= MAX_NAME and not _NO_NAME.match(text)
