"""XML is read as what it means; pages of HTML, words with marks in them, documents that declare types stay texts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.reading.facts import Fact, facts_of, opened
from projections.cards.reading.forms import MASK
from projections.cards.secrecy.secrets import masked

ORDER = '<order id="W-17"><item>lamp</item><item>desk</item><due>2026-06-12</due></order>'
HELD = {"order": {"id": "W-17", "item": ["lamp", "desk"], "due": "2026-06-12"}}
SOAP = """<?xml version="1.0" encoding="utf-16"?>
<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <soap:Body>
    <GetStay xmlns="http://hotel.example/" xsi:type="Stay"><room no="007">sea &amp; sun</room></GetStay>
  </soap:Body>
</soap:Envelope>
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (ORDER, HELD),
        (f"<?xml version='1.0'?>\n<!-- new -->\n{ORDER}\n", HELD),
        (f"```xml\n{ORDER}\n```", HELD),
        (f"Found it: {ORDER}", ["Found it:", HELD]),
        (f"找到：\n{ORDER}", ["找到：", HELD]),
        (SOAP, {"Envelope": {"Body": {"GetStay": {"room": {"no": "007", "text": "sea & sun"}}}}}),
        ("<stop>Oslo</stop>\n<stop>Bergen</stop>", {"stop": ["Oslo", "Bergen"]}),
        ('<row id="1"><id>2</id><note/></row>', {"row": {"id": ["1", "2"], "note": ""}}),
        ("<q><![CDATA[a < b]]></q>", {"q": "a < b"}),
    ],
)
def test_xml_is_read_as_what_it_means(text: str, value: Any) -> None:
    assert opened(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE q [<!ENTITY x "yyyy">]><q>&x;</q>',
        "<!doctype html><html><body><b>Hi</b></body></html>",
        "<html><body><h1>Hi</h1></body></html>",
        "<div><span>Hi</span></div>",
        "<note>Hello <name>Ann</name>, come in</note>",
        "<order><item></order>",
        "<q>&nbsp;</q>",
        "<q>\x00</q>",
        "<q>\ud800</q>",
        "write to Ann <ann@x.example>",
        "a < b and c > d >",
        "<q>" * 40 + "1" + "</q>" * 40,
    ],
)
def test_what_is_no_xml_of_records_stays_a_text(text: str) -> None:
    assert opened(text) is text


def test_facts_of_elements_bear_their_names() -> None:
    assert facts_of(f"Found it: {ORDER}")[1:3] == [
        Fact("order.id", "1.order", "W-17"),
        Fact("order.item", "1.order", "lamp"),
    ]
    assert facts_of({"answer": f"\n{ORDER}"})[0] == Fact("answer.order.id", "answer.order", "W-17")
    assert masked(opened("<login><password>hunter2</password></login>")) == {"login": {"password": MASK}}


@pytest.mark.parametrize(
    "text",
    ["<q>" * 60_000, "<q>" * 30_000 + "</q>" * 30_000, "<q>1</q>" * 30_000, "<" * 200_000 + ">",
     "<?xml " * 30_000 + "?>", "x:\n" * 130 + "<" * 200_000 + ">", "<q " + "x='1' " * 30_000 + "/>"],
)  # fmt: skip
def test_hostile_markup_costs_little(text: str) -> None:
    began = time.process_time()
    facts_of(text)
    assert time.process_time() - began < 2.0


@given(st.text(alphabet="<>/?!ab=\"' &;\n", max_size=60))
def test_any_markup_has_facts(text: str) -> None:
    assert all(fact.text for fact in facts_of(f"<q>{text}</q>"))
