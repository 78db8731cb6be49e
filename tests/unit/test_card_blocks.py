"""Records with heads, records of a line, names without a colon, and lines of well-known tools; prose stays prose."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.reading.facts import facts_of, opened

PEOPLE = [{"Name": "Ada", "Mail": "ada@x.example"}, {"Name": "Bo", "Mail": "bo@x.example"}]
ADA, BO = ("\n".join(f"{name}: {value}" for name, value in one.items()) for one in PEOPLE)
ADA_IN, BO_IN = (text.replace("\n", "\n   ") for text in (ADA, BO))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"1. {ADA_IN}\n2. {BO_IN}", PEOPLE),
        (f"1) {ADA_IN}\n\n2) {BO_IN}\n", PEOPLE),
        (f"Found 2 people:\n\n1. {ADA_IN}\n2. {BO_IN}", ["Found 2 people:", PEOPLE]),
        (f"Total: 2\n\n#1\n{ADA}\n#2\n{BO}", ["Total: 2", PEOPLE]),
        (f"[1]\n{ADA}\n\n[2]\n{BO}", PEOPLE),
        (f"Record 1 of 2\n{ADA}\n\nRecord 2 of 2\n{BO}", {"Record": PEOPLE}),
        (f"--- Contact 1 ---\n{ADA}\n--- Contact 2 ---\n{BO}", {"Contact": PEOPLE}),
        (f"--- Contact 1 ---\n{ADA}", {"Contact": PEOPLE[:1]}),
        (f"*** 1. row ***\n{ADA}\n*** 2. row ***\n{BO}", PEOPLE),
        (f"{ADA}\n---\n{BO}\n---\n", PEOPLE),
        (f"Option 1:\n- {ADA}\nOption 2:\n- {BO}".replace("\nM", "\n- M"), {"Option": PEOPLE}),
        (f"== First ==\n{ADA}\n\n== Last ==\n{BO}", {"First": PEOPLE[0], "Last": PEOPLE[1]}),
        (f"Order 4711\n{ADA}\nOrder 4722\n{BO}", {"Order 4711": PEOPLE[0], "Order 4722": PEOPLE[1]}),
        (
            "1. **Lamp**\n   - **Price**: $7\n2. **Desk**\n   - **Price**: $90\n   • Shelf: B7",
            [{"title": "Lamp", "Price": "$7"}, {"title": "Desk", "Price": "$90", "Shelf": "B7"}],
        ),
        ("[db]\nhost = x1\nport = 5432\n[web]\nhost=y", {"db": {"host": "x1", "port": "5432"}, "web": {"host": "y"}}),
    ],
)
def test_records_with_heads(text: str, value: Any) -> None:
    assert opened(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Name .......: Ada\nCity .......: Oslo", {"Name": "Ada", "City": "Oslo"}),
        ("Name ....... Ada\nCity ....... Oslo", {"Name": "Ada", "City": "Oslo"}),
        ('Name = Ada\nCity="Oslo"\nNote =', {"Name": "Ada", "City": "Oslo", "Note": ""}),
        ("Name\tAda\nEmail\ta@x.example\nPhone\t555-12", {"Name": "Ada", "Email": "a@x.example", "Phone": "555-12"}),
        ("Name    Ada Lee\nEmail   a@x.example\nFax     7", {"Name": "Ada Lee", "Email": "a@x.example", "Fax": "7"}),
        ("Name:    Ada Lee\nEmail:   a@x.example\nFax:     7", {"Name": "Ada Lee", "Email": "a@x.example", "Fax": "7"}),
        ("Name    Age\nAda     36\nBo      37", [{"Name": "Ada", "Age": "36"}, {"Name": "Bo", "Age": "37"}]),
    ],
)
def test_names_without_a_colon(text: str, value: Any) -> None:
    assert opened(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "ID: 7 | Name: Ada\nID: 8 | Name: Bo", "- ID: 7, Name: Ada\n- ID: 8, Name: Bo",
        "1. ID: 7; Name: Ada\n2. ID: 8; Name: Bo",
        "ID=7 Name=Ada\nID=8 Name=Bo", "**ID**: 7 - **Name**: Ada\n**ID**: 8 - **Name**: Bo",
    ],
)  # fmt: skip
def test_a_record_a_line(text: str) -> None:
    assert opened(text) == [{"ID": "7", "Name": "Ada"}, {"ID": "8", "Name": "Bo"}]


def test_marks_within_a_value_are_no_bullets() -> None:
    text = "1. Name: Ada · Bo\n   Sum: 3 * 4\n2. Name: Eve\n   * Sum: 5 * 6"
    assert opened(text) == [{"Name": "Ada · Bo", "Sum": "3 * 4"}, {"Name": "Eve", "Sum": "5 * 6"}]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("src/a.py:7: gone\nC:\\b.py:8:3: words: more", {"path": "src/a.py", "line": "7", "text": "gone"}),
        (
            "total 48\n-rw-r--r-- 1 ann dev   120 May  3 10:00 a b.txt\ndrwxr-xr-x 2 ann dev 4096 May  3  2024 src",
            {"mode": "-rw-r--r--", "links": "1", "owner": "ann", "group": "dev", "size": "120",
             "modified": "May  3 10:00", "name": "a b.txt"},
        ),
        (
            "1a2b3c4 (HEAD -> main) Mend the lamp\nffeedda Add it",
            {"commit": "1a2b3c4", "refs": "HEAD -> main", "subject": "Mend the lamp"},
        ),
        (
            "FAILED tests/a.py::test_b[x-y] - assert 1 == 2\nFAILED tests/a.py::test_c",
            {"outcome": "FAILED", "test": "tests/a.py::test_b[x-y]", "reason": "assert 1 == 2"},
        ),
        (
            "tests/a.py::test_b PASSED [ 50%]\ntests/a.py::test_c FAILED [100%]",
            {"test": "tests/a.py::test_b", "outcome": "PASSED"},
        ),
        (
            " src/a.py   | 7 ++--\n b.py | 2 +-\n 2 files changed, 6 insertions(+), 3 deletions(-)",
            {"path": "src/a.py", "changes": "7"},
        ),
    ],
)  # fmt: skip
def test_lines_of_well_known_tools(text: str, first: Any) -> None:
    held = opened(text)
    assert held[0] == first
    assert len(held) == 2


@pytest.mark.parametrize(
    "text",
    [
        "1. Wash the car\n2. Call Ann: she waits\n3. Sleep", "Steps:\n1. Open the door\n2. Name: it",
        "[1] https://x.example/a\n[2] https://x.example/b", "Chapter 1\nIt was a dark night\nChapter 2\nshe said",
        "1. a: b\n3. a: c\nno", "x = 1\ny = foo(2)\nprint(x)", "a = f(\nb = 2;", "if x == 1:\n    y = 2",
        "Orders\n------\nnone",
        "1234567 lamps\n7654321 desks", "defaced the wall\neffaced them", "total 0\ntotal 1",
        "12:30: lunch\n13:30: work and\nrest",
        "- ID: 7\nmore words, and: more", "== Orders ==\nnone today", "User 1\nHi: you\nUser 2\nBye: now",
        "FAILED tests/a.py::test_b\n1 failed",
    ],
)  # fmt: skip
def test_what_is_not_surely_records_stays_a_text(text: str) -> None:
    assert opened(text) is text


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{n}. a: b" for n in range(1, 1_900)), "--- a ---\n" * 1_900, "a" + "." * 60_000 + "\nb",
        "[" * 60_000 + "\nx",
        "a=b " * 30_000 + "\na=b", "a: b, " * 30_000 + "\na: b", "a  " * 30_000 + "\nb", "- " * 60_000 + "\n- a: b",
        "a" * 60_000 + " | 1 +\nx", ("a" * 39 + "  ") * 3_000 + "\nx: y", "**a" * 30_000 + ": b\n: c",
        "a::" * 30_000 + "\nb",
        "--" + "- a" * 30_000 + "\nb: c", "a.b" + " " * 60_000 + "|\nx", "Name" + " " * 60_000 + "\nx",
        "1. a: b\n c: d" + " " * 60_000 + "e",
    ],
)  # fmt: skip
def test_hostile_lines_cost_little(text: str) -> None:
    began = time.process_time()
    facts_of(text)
    assert time.process_time() - began < 2.0


@given(st.text(alphabet="a1:=.|[]#-* \t\n", max_size=80))
def test_any_lines_have_facts(text: str) -> None:
    assert all(fact.text for fact in facts_of(text))
