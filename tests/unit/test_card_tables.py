"""Tables and records written as text are read as what they mean; prose stays prose."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.cards.reading.facts import Fact, facts_of, opened
from projections.cards.reading.tabular import structured
from projections.cards.summary import summarize

PODS = "NAME        READY   STATUS    AGE\nweb-7d9f    1/1     Running   3d\ndb-0        0/1     Pending   2m\n"
ORDER = """\
order:
  id: ORD-7731
  due: 2026-06-12 10:30
  lines:
    - sku: LAMP-204
      qty: 2
    - sku: "DESK-900"
      qty: 1
  tags:
  - gift
  - fragile
note:
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            'sku,price,shelf\nA-1,"1,200",B7\nB-2,30,\n',
            [{"sku": "A-1", "price": "1,200", "shelf": "B7"}, {"sku": "B-2", "price": "30", "shelf": ""}],
        ),
        ("id;name\n07;Ann\n08;Bo", [{"id": "07", "name": "Ann"}, {"id": "08", "name": "Bo"}]),
        ("id\tfull name\n07\tAnn Lee\n08\tBo", [{"id": "07", "full name": "Ann Lee"}, {"id": "08", "full name": "Bo"}]),
        (
            PODS,
            [
                {"NAME": "web-7d9f", "READY": "1/1", "STATUS": "Running", "AGE": "3d"},
                {"NAME": "db-0", "READY": "0/1", "STATUS": "Pending", "AGE": "2m"},
            ],
        ),
        ("| 名称 | 单号 |\n|---|---|\n| 台灯 | A-1 |", [{"名称": "台灯", "单号": "A-1"}]),
        (
            "Two:\n\n| a | b |\n|:--|--:|\n| 1 | x |\n| 2 | y |\n\nOk?",
            [{"Two": [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]}, "Ok?"],
        ),
        (
            "- **order**: W-17\n- **city**: Köln\n\n### items\n| sku | qty |\n|---|---|\n| A-1 | 2 |",
            {"order": "W-17", "city": "Köln", "items": [{"sku": "A-1", "qty": "2"}]},
        ),
        (
            "envio: ENV1\nestado: retenido\n\neventos:\nfecha,lugar\n2026-01-02,Bilbao\n2026-01-03,Murcia",
            {
                "envio": "ENV1",
                "estado": "retenido",
                "eventos": [{"fecha": "2026-01-02", "lugar": "Bilbao"}, {"fecha": "2026-01-03", "lugar": "Murcia"}],
            },
        ),
        (
            ORDER,
            {
                "order": {
                    "id": "ORD-7731",
                    "due": "2026-06-12 10:30",
                    "lines": [{"sku": "LAMP-204", "qty": "2"}, {"sku": "DESK-900", "qty": "1"}],
                    "tags": ["gift", "fragile"],
                },
                "note": "",
            },
        ),
        ("订单号：A-7731\n状态：已发货", {"订单号": "A-7731", "状态": "已发货"}),
        ("Name: Ann\nSeat: 4A\n\nName: Bo\nSeat: 4B", [{"Name": "Ann", "Seat": "4A"}, {"Name": "Bo", "Seat": "4B"}]),
        ("Name: Ann\n\nSeat: 4A", {"Name": "Ann", "Seat": "4A"}),
        ("url: http://x.example:80/a\nat: 10:30:00", {"url": "http://x.example:80/a", "at": "10:30:00"}),
    ],
)
def test_tables_and_records(text: str, value: Any) -> None:
    assert structured(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "One line, with a comma: no table",
        "Hello Mia, how are you\nI have a cat, and a dog\nBye for now, John my dear",
        "Dear Ann,\nthe parcel: it is here.\nYours",
        "Ann: hello\nBo: hello\nAnn: bye",  # who speaks twice is no field
        "a: 1\n b: 2",
        "a: 1\n  b: 2",
        "def f(x):\n    return {x: 1}\n",
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n',
        "1, 2, 3\n4, 5, 6\n7, 8, 9",  # without names
        "a,b\n1,2\n3,4,5",
        "a,a\n1,2\n3,4",
        "A long text about many things.\n" * 20 + "| a | b |\n|---|---|\n| 1 | 2 |\n",
    ],
)
def test_what_is_not_surely_a_table_stays_a_text(text: str) -> None:
    assert structured(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1.10}\n{"a": 2}\n', [{"a": "1.10"}, {"a": 2}]),
        ('```json\n{"a": [1]}\n```', {"a": [1]}),
        ("```\na: 1\nb: 2\n```", {"a": "1", "b": "2"}),
        ('Result: {"id": "A-1"}', ["Result:", {"id": "A-1"}]),
        ("找到两个订单：\n[{'id': 'A-1'}]", ["找到两个订单：", [{"id": "A-1"}]]),
        (
            "{'a': 1.10, 'b': None, 'c': (1,), 'd': [True, 'it\\'s', \"x\\n\"], 'n': 99999999999999999999999}",
            {"a": "1.10", "b": None, "c": [1], "d": [True, "it's", "x\n"], "n": 99999999999999999999999},
        ),
    ],
)
def test_json_in_its_many_dresses(text: str, value: Any) -> None:
    """C27 also where Python wrote it."""
    assert opened(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "{1, 2}",
        "{'a': f()}",
        "{'a': 'b' 'c'}",
        "{'a': '\\x00'}\x00",
        "see [1]",
        "[not json]",
        "}",
        "```",
        "a: [x}",
        "[" * 70 + "]" * 70,
    ],
)
def test_what_is_no_document_stays_a_text(text: str) -> None:
    assert opened(text) is text


def test_facts_of_a_table_bear_its_names() -> None:
    facts = facts_of(PODS)
    assert facts[:2] == [Fact("NAME", "0", "web-7d9f"), Fact("READY", "0", "1/1")]
    assert summarize(facts) == (
        "NAME | READY | STATUS | AGE\n- web-7d9f | 1/1 | Running | 3d\n- db-0 | 0/1 | Pending | 2m"
    )


def test_a_table_in_json_in_a_text_is_read_too() -> None:
    answer = json.dumps({"content": [{"type": "text", "text": ORDER}]})
    assert Fact("content.text.order.lines.sku", "content.0.text.order.lines.1", "DESK-900") in facts_of(answer)


@pytest.mark.parametrize(
    "text",
    [
        "a: b\n" * 1_900,
        "- " * 60_000 + "\nx",
        "|" * 60_000 + "\n" + "|" * 60_000,
        "a,b\n" * 1_900,
        "  " * 60_000 + "\nx: y",
        "a\t" * 30_000 + "\n" + "\t" * 30_000,
        '"' * 60_000 + "\n,",
        "".join("  " * n + f"k{n}:\n" for n in range(300)),
        "x: y\n" * 20_000,
        "a " * 30_000 + ":\nb: c",
        "|-" * 30_000 + "\n" + "|-" * 30_000,
    ],
)
def test_hostile_texts_cost_little(text: str) -> None:
    began = time.process_time()
    facts_of(text)
    assert time.process_time() - began < 2.0


@given(st.text(alphabet="ab:|,;- \t\n\"'#{", max_size=80))
def test_any_text_has_facts(text: str) -> None:
    assert all(fact.text for fact in facts_of(text))


NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
WORDS = st.from_regex(r"[A-Za-z0-9-]{1,8}", fullmatch=True)


@settings(max_examples=40)
@given(st.lists(NAMES, min_size=2, max_size=5, unique=True), st.data())
def test_a_table_written_in_any_of_the_ways_is_read_again(names: list[str], data: st.DataObject) -> None:
    cells = st.lists(WORDS, min_size=len(names), max_size=len(names))
    rows = data.draw(st.lists(cells, min_size=2, max_size=6))
    expected = [dict(zip(names, row, strict=True)) for row in rows]
    for mark in (",", ";", "\t", "   "):
        assert structured("\n".join(mark.join(row) for row in [names, *rows])) == expected
    lines = ["|".join(names), "|".join("---" for _ in names), *("|".join(row) for row in rows)]
    assert structured("\n".join(lines)) == expected
