"""Rows that are arrays of cells: named by another member, by their first row, or by their place."""

from __future__ import annotations

from typing import Any

import pytest

from projections.cards.reading.facts import facts_of


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"columns": ["id", "name"], "rows": [[7, "Ada"]]},
         ["columns: id", "columns: name", "rows.id: 7", "rows.name: Ada"]),
        ({"rows": [["A1", 3.5]], "schema": [{"name": "order", "type": "text"}, {"name": "total", "type": "real"}]},
         ["rows.order: A1", "rows.total: 3.5"]),
        ([["id", "name"], [7, "Ada"], [9, "Bo"]], ["id: 7", "name: Ada", "id: 9", "name: Bo"]),
        ([["id", "name"], ["ada", "bo"]], ["column 1: id", "column 2: name", "column 1: ada", "column 2: bo"]),
        ("[('S5759', '2025-06-17', 'bay 2'), ('S8505', '2025-09-27', 'lift')]",
         ["column 1: S5759", "column 2: 2025-06-17", "column 3: bay 2", "column 1: S8505", "column 2: 2025-09-27",
          "column 3: lift"]),
        ({"points": [[1.5], [2.5]]}, ["points: 1.5", "points: 2.5"]),
        ({"rows": [[1, 2], [3]], "columns": ["a", "b"]}, ["rows: 1", "rows: 2", "rows: 3", "columns: a", "columns: b"]),
        ({"columns": ["a", "a"], "rows": [[1, 2]]},
         ["columns: a", "columns: a", "rows.column 1: 1", "rows.column 2: 2"]),
        ({"rows": [[]], "columns": []}, []),
    ],
)  # fmt: skip
def test_cells_have_the_names_of_their_columns(value: Any, told: list[str]) -> None:
    """C34: what is not surely a table is read as it is, and nothing is lost."""
    assert [f"{fact.field}: {fact.text}" for fact in facts_of(value)][: len(told)] == told


def test_the_record_of_a_cell_is_its_row() -> None:
    facts = facts_of({"columns": ["id", "name"], "rows": [[7, "Ada"], [9, "Bo"]]})
    assert [fact.record for fact in facts if fact.field == "rows.id"] == ["rows.0", "rows.1"]


def test_lines_that_tell_places_in_files_are_records() -> None:
    found = facts_of("src/a.py:12: def run():\nsrc/b.py:40:7: error: no name\nC:\\x\\y.py:3:z")
    assert [fact.text for fact in found if fact.field == "path"] == ["src/a.py", "src/b.py", "C:\\x\\y.py"]
    assert [fact.text for fact in found if fact.field == "line"] == ["12", "40", "3"]
    assert {fact.field for fact in facts_of("12:30:05: up\n12:40:06: down")} == {""}
