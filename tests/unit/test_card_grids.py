"""Tables as databases and data tools print them are read as rows; what may be something else stays a text."""

from __future__ import annotations

import time
from typing import Any

import pytest

from projections.cards.reading.facts import Fact, facts_of
from projections.cards.reading.opening import read

PSQL = " id |     name     \n----+--------------\n  1 | Ada Lovelace\n  2 | Bo\n"
MYSQL = """\
+----+--------------+
| id | name         |
+----+--------------+
|  1 | Ada Lovelace |
|  2 | Bo           |
+----+--------------+
"""
BOX = """\
┌────┬──────────────┐
│ id │     name     │
├────┼──────────────┤
│ 1  │ Ada Lovelace │
│ 2  │ Bo           │
└────┴──────────────┘
"""
GRID = """\
+----+--------------+
| id | name         |
+====+==============+
|  1 | Ada Lovelace |
+----+--------------+
|  2 | Bo           |
+----+--------------+
"""
RICH = """\
┏━━━━┳━━━━━━━━━━━━━━┓
┃ id ┃ name         ┃
┡━━━━╇━━━━━━━━━━━━━━┩
│  1 │ Ada Lovelace │
│  2 │ Bo           │
└────┴──────────────┘
"""
COLUMN = "id  name        \n--  ------------\n1   Ada Lovelace\n2   Bo\n"
SIMPLE = """\
  id  name
----  ------------
   1  Ada Lovelace
   2  Bo
"""
FRAME = """\
   id          name
0   1  Ada Lovelace
1   2            Bo
"""
LINE = """\
   id = 1
 name = Ada Lovelace

   id = 2
 name = Bo
"""
PEOPLE = [{"id": "1", "name": "Ada Lovelace"}, {"id": "2", "name": "Bo"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (PSQL, PEOPLE),
        (PSQL + "(2 rows)\n", PEOPLE),
        (PSQL + "(2 行记录)\n", PEOPLE),
        ("People we found\n" + PSQL + "(2 rows)", ["People we found", PEOPLE]),
        ("Here they are:\n\n" + PSQL, ["Here they are:", PEOPLE]),
        (PSQL + "    | no id\n", [*PEOPLE, {"id": "", "name": "no id"}]),
        (PSQL + "  3 | \n(3 rows)", [*PEOPLE, {"id": "3", "name": ""}]),
        (PSQL + "  3 | a | b\n", [*PEOPLE, {"id": "3", "name": "a | b"}]),
        (PSQL + "  3 | 北京 +\n", [*PEOPLE, {"id": "3", "name": "北京 +"}]),
        (" count \n-------\n    42\n(1 row)\n", [{"count": "42"}]),
        (" a | ?column? | count(*)\n---+----------+----\n 1 | x | 2\n", [{"a": "1", "?column?": "x", "count(*)": "2"}]),
        (MYSQL, PEOPLE),
        (MYSQL + "2 rows in set (0.00 sec)\n", PEOPLE),
        (MYSQL + "2 rows in set, 1 warning (0.01 sec)\n", PEOPLE),
        ("mysql> select * from people;\n" + MYSQL, ["mysql> select * from people;", PEOPLE]),
        ("+---+\n| n |\n+---+\n| 4 |\n+---+", [{"n": "4"}]),
        ("| a | b |\n|---+---|\n| 1 | 北京 |\n|   | x |", [{"a": "1", "b": "北京"}, {"a": "", "b": "x"}]),
        (BOX, PEOPLE),
        (BOX.replace("│ 2  │ Bo           │", "│ 2  │              │"), [PEOPLE[0], {"id": "2", "name": ""}]),
        (BOX.replace("Bo        ", "北京 │ a"), [PEOPLE[0], {"id": "2", "name": "北京 │ a"}]),
        (BOX.replace("Bo    ", "北京|a"), [PEOPLE[0], {"id": "2", "name": "北京|a"}]),
        (GRID, PEOPLE),
        (RICH, PEOPLE),
        ("       People\n" + RICH, ["People", PEOPLE]),
        (COLUMN, PEOPLE),
        (COLUMN.replace("-", "─"), PEOPLE),
        ("id name\n-- ----\n 1 Ada+\n", [{"id": "1", "name": "Ada+"}]),
        (SIMPLE, PEOPLE),
        ("id          name\n----------- ----\n          1 Ada\n\n(1 rows affected)", [{"id": "1", "name": "Ada"}]),
        (
            "id  town  land\n--  ----  ----\n1   北京    中国\n2         中\n",
            [{"id": "1", "town": "北京", "land": "中国"}, {"id": "2", "town": "", "land": "中"}],
        ),
        (
            "id  town  land\n--  ----  ----\n1   北京  中国\n2   Rome  意\n",
            [{"id": "1", "town": "北京", "land": "中国"}, {"id": "2", "town": "Rome", "land": "意"}],
        ),
        (FRAME, PEOPLE),
        (FRAME + "\n[2 rows x 2 columns]", PEOPLE),
        ("The frame:\n" + FRAME, ["The frame:", PEOPLE]),
        ("   id  n\n0   1 -2\n\n[1 rows x 2 columns]", [{"id": "1", "n": "-2"}]),
        (LINE, PEOPLE),
        ("   id = 1\n name = Ada\n  a_b = \n", [{"id": "1", "name": "Ada", "a_b": ""}]),
        ("(1, 'Ada Lovelace')\n(2, None)", [[1, "Ada Lovelace"], [2, None]]),
    ],
)
def test_what_tools_print_is_read_as_rows(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        PSQL + "(3 rows)\n",  # a row is missing, or a value has two lines
        PSQL + "and so on\n",
        PSQL.replace("id |     name", "id |     id"),
        " id | name\n----+------\n(0 rows)\n",
        " name  | id\n-------+----\n Ada  +|  1\n Lovel |\n",  # goes on in the next line
        " id | name  \n----+-------\n  3 | two  +\n    | lines\n",
        " id | name  \n----+-------\n  3 | 北京 +\n    | lines\n",
        "id name \n-- -----\n 3 lines+\n   two\n",
        BOX.replace(" Bo           │", " Bo          ↵│"),
        MYSQL.replace(" Bo           |", " Bo          .|"),
        "A title\n-------\nSome words.\nSome more.",
        "Title\n- - -\nwords here\nmore of it",
        MYSQL.replace("|  2 | Bo           |", "|  2 | Bo           "),
        MYSQL + MYSQL,
        GRID.replace("+----+--------------+\n|  2", "|  2", 1) + GRID[:22] + "| 3 | c |\n",
        RICH.replace("│  2 │ Bo           │", "│    │ King         │"),  # a long value that is broken
        COLUMN + "3 x Bo\n",
        FRAME.replace("1   2", "7   2"),
        FRAME + "\n[9 rows x 2 columns]",
        FRAME.replace("         Bo", "        Bo "),
        "    id   v\n0    0   0\n..  ..  ..\n9    9   9\n\n[10 rows x 2 columns]",
        "   id first name\n0   1        a b\n1   2          c",  # two names, or one
        LINE + "\n   id = 3\n",
        "periodic = repeat(it)\n    func = (cycle if p else path for p in periodic)",
        "nodes = f()\n    a = g()\n    b = h()",
        "+-------+\n| a | b |\n+=======+\n| 1 | x |\n| 2 | y |\n+-------+",
        LINE + " name = once more\n",
        "(1, 'Ada')\n(2, now())",
        "(see below)\n(and above)",
        "(1)\n(2)",
    ],
)
def test_what_may_be_something_else_stays_a_text(text: str) -> None:
    assert read(text) is None


def test_facts_of_a_printed_table_bear_its_names() -> None:
    assert facts_of(PSQL + "(2 rows)")[:2] == [Fact("id", "0", "1"), Fact("name", "0", "Ada Lovelace")]


@pytest.mark.parametrize("sign", ["-", "+", "|", "=", " ", "─", "┃", "- ", "-+", "(", "0 ", "a ", "北", " = "])
def test_hostile_lines_cost_little(sign: str) -> None:
    """Lines of 100,000 signs, alone and below what begins a table."""
    long = sign * (100_000 // len(sign))
    began = time.process_time()
    for text in (
        f"{long}\n{long}\n{long}",
        f"a | b\n---+---\n{long}\n{long}",
        f"a  b\n-  -\n{long}\n{long}",
        f"x\n0 {long}\n1",
    ):
        read(text)
    assert time.process_time() - began < 2.0
