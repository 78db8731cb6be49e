"""Summaries: what a card says is readable, bounded, keeps what is in use, and says nothing of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.thought import DecisionMade
from projections.cards.check import check
from projections.cards.reading.facts import facts_of
from projections.cards.reading.forms import normal
from projections.cards.summary import LIMIT, LIMIT_IN_USE, of_decision, summarize
from projections.cards.templates import PLAIN, Template

ORDER = {
    "order_id": "ORD-7731",
    "status": "packed",
    "ship_to": {"city": "Turin", "zip": "10121"},
    "lines": [
        {"sku": "LAMP-204", "qty": 2, "price": {"net": 49.5, "vat": 9.9}, "warehouse": "MXP-1"},
        {"sku": "DESK-900", "qty": 1, "price": {"net": 310, "vat": 62}, "warehouse": "MXP-1"},
    ],
    "cards": {"card_4421486": {"brand": "visa"}, "gift_99120": {"left": 20, "id": "gift_99120"}},
    "tags": ["gift", "fragile"],
}


def says(value: Any, template: Template = PLAIN, used: tuple[str, ...] = ()) -> str:
    return summarize(facts_of(value), template, used)


def test_an_object_reads_as_cells_and_arrays_as_tables_with_their_names_said_once() -> None:
    assert says(ORDER) == (
        "order_id: ORD-7731; status: packed; ship_to (city: Turin, zip: 10121); tags: gift, fragile\n"
        "lines (warehouse: MXP-1): sku | qty | price (net | vat)\n"
        "- LAMP-204 | 2 | 49.5 | 9.9\n"
        "- DESK-900 | 1 | 310 | 62\n"
        "cards:\n"
        "- card_4421486: brand: visa\n"
        "- gift_99120: left: 20"
    )


def test_arrays_in_an_array_stay_together() -> None:
    """Legs of one journey begin with a dash and go on with a plus."""
    legs = [[{"leg": "MXP-ZRH", "at": "07:10"}, {"leg": "ZRH-BER", "at": "09:40"}], [{"leg": "MXP-BER", "at": "12:05"}]]
    assert says(legs) == "leg | at\n- MXP-ZRH | 07:10\n+ ZRH-BER | 09:40\n- MXP-BER | 12:05"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"rows": [["a", 1], ["b", 2]]}, "rows: column 1 | column 2\n- a | 1\n- b | 2"),
        ([{"n": "one"}, {"n": "two"}], "n: one; two"),
        (["LH-1001", "LH-1002"], "LH-1001, LH-1002"),
        ({"seats": {"12C-4417": "taken", "12D-4418": "free"}}, "seats:\n- 12C-4417: taken\n- 12D-4418: free"),
        ('{"order_id": 9999999999999999999999, "rate": 1.10}', "order_id: 9999999999999999999999; rate: 1.10"),
        (255.0, "255.0"),
        ({}, ""),
        ("", ""),
    ],
)
def test_other_shapes(value: Any, text: str) -> None:
    """C27: a number stays as it was written."""
    assert says(value) == text


def test_a_long_text_in_a_field_is_cut_between_its_sentences() -> None:
    story = " ".join(f"Sentence number {n} of the story says nothing." for n in range(40))
    assert says({"id": "S-1001", "story": f"Parcel P-77120 left. {story}"}).startswith(
        "id: S-1001; story: Parcel P-77120 left. Sentence number 0 of the story says nothing."
    )


def test_what_is_in_use_comes_first_and_whole() -> None:
    rows = [{"sku": f"SKU-{n:04}", "price": 100 + n, "place": f"shelf {n}"} for n in range(160)]
    plain, used = says(rows), says(rows, used=(normal("SKU-0150"), normal("251")))
    assert len(plain) <= LIMIT and "SKU-0000 | 100 | shelf 0" in plain and "SKU-0150" not in plain
    assert "- SKU-0150 | 250 | shelf 150" in used and "- SKU-0151 | 251 | shelf 151" in used
    assert len(used) <= LIMIT and used.endswith("…")


def test_many_values_in_use_may_take_more_room_but_not_any() -> None:
    rows = [{"sku": f"SKU-{n:04}", "text": f"{n} " + "x" * 90} for n in range(200)]
    text = says(rows, used=tuple(normal(f"SKU-{n:04}") for n in range(150, 160)))
    assert all(f"SKU-{n:04}" in text for n in range(150, 160)) and LIMIT < len(text) <= LIMIT_IN_USE
    assert len(says(rows, used=tuple(normal(f"SKU-{n:04}") for n in range(200)))) <= LIMIT_IN_USE


def test_every_table_shows_some_rows_before_one_shows_all() -> None:
    text = says({"a": [{"n": f"A-{n:05}"} for n in range(200)], "b": [{"n": "B-1", "m": "x"}, {"n": "B-2", "m": "y"}]})
    assert "- B-1 | x\n- B-2 | y" in text and "A-00002" in text


def test_prose_keeps_its_first_and_telling_sentences() -> None:
    filler = "There is nothing to say about this part of the way. "
    text = says("We looked at your parcel. " + filler * 30 + "Parcel P-77120 was refused at the door.\n" + filler * 5)
    assert text.startswith("We looked at your parcel.") and "Parcel P-77120 was refused at the door." in text
    assert "…" in text and len(text) <= LIMIT


def test_long_sentences_with_values_in_use_are_cut_around_them() -> None:
    """C30: twelve of them have no room as a whole, and every value is kept."""
    words = "and there was nothing that anybody would have wanted to remember of it later "
    text = "\n".join(f"Then {words * 2} parcel P-{n:05} came {words * 2}" for n in range(12))
    used = tuple(f"p-{n:05}" for n in range(12))
    said = says(text, used=used)
    assert LIMIT < len(said) <= LIMIT_IN_USE
    assert check(said, facts_of(text), used).good and all(f"parcel P-{n:05} came" in said for n in range(12))


def test_what_a_program_wrote_last_is_how_it_ended() -> None:
    log = "\n".join(f"test_{n} passed in {n} ms" for n in range(300)) + "\n2 failed, 298 passed"
    template = Template(tool="bash", prose="tail")
    assert says(log, template).endswith("2 failed, 298 passed")
    assert "2 failed, 298 passed" in says({"exit_code": 1, "stdout": log}, template)


@pytest.mark.parametrize(
    "text",
    [
        "订单 A-7731 已发货。它将于2024年5月20日到达都灵！请注意查收。" * 40,
        "คำสั่งซื้อ A-7731 จัดส่งแล้ว จะถึงวันที่ 20 พฤษภาคม " * 40,
        "الطلب A-7731 شُحن. هل وصل؟ نعم وصل اليوم. " * 40,
        "ऑर्डर A-7731 भेज दिया गया है। यह कल पहुँचेगा। " * 40,
    ],
)
def test_prose_of_any_language_is_cut_between_its_sentences(text: str) -> None:
    """C30 for scripts with other ends of sentences, or none."""
    facts = facts_of(text)
    said = summarize(facts)
    assert len(said) <= LIMIT and "A-7731" in said and said.endswith("…")
    assert all(part.strip() in text for part in said.split("…"))


@pytest.mark.parametrize("cluster", ["👨‍👩‍👧‍👦", "🇩🇪", "é", "𠀀"])
def test_text_without_spaces_is_cut_between_graphemes(cluster: str) -> None:
    """C30."""
    for shift in range(len(cluster) + 1):
        said = says("x" * (397 - shift) + cluster * 300)
        body = said.replace("…", "").replace(" ", "").replace("\n", "").lstrip("x")
        assert len(said) <= LIMIT and body and body == cluster * (len(body) // len(cluster))


def test_a_decision_is_one_paragraph_and_ends_before_a_value_rather_than_in_it() -> None:
    made = DecisionMade(
        chosen="ferry F-2201", question="How?", alternatives=["train", {"bus": "B-1"}], rationale="cheap"
    )
    assert of_decision(made) == 'How?: ferry F-2201 (rather than train; {"bus":"B-1"}) — cheap'
    for shift in range(12):
        long = of_decision(
            DecisionMade(chosen="ferry", rationale="x " * (390 + shift) + "order ORD-773120011 and more")
        )
        assert len(long) <= LIMIT and long.endswith("…")
        assert "ORD-773120011" in long or "ORD" not in long


# --- templates -------------------------------------------------------------------------------------------------------


def test_a_template_says_how_a_tool_reads() -> None:
    template = Template(
        tool="get_order",
        title="Order {order_id} is {status}",
        fields=("lines", "tags"),
        leave_out=("lines.warehouse",),
        names={"lines.sku": "article", "tags": "marks"},
    )
    assert says(ORDER, template) == (
        "Order ORD-7731 is packed\n"
        "lines: article | qty | price (net | vat)\n"
        "- LAMP-204 | 2 | 49.5 | 9.9\n"
        "- DESK-900 | 1 | 310 | 62\n"
        "marks: gift, fragile"
    )


def test_a_value_in_use_is_shown_though_the_template_leaves_it_out() -> None:
    template = Template(tool="get_order", fields=("status",))
    assert says(ORDER, template) == "status: packed"
    assert says(ORDER, template, used=("10121",)) == "status: packed; ship_to (zip: 10121)"


def test_a_title_without_its_fields_is_left_out() -> None:
    assert says({"error": "no such order"}, Template(tool="x", title="Order {order_id}")) == "error: no such order"


# --- both ways -------------------------------------------------------------------------------------------------------


def test_a_check_finds_what_is_missing_and_what_is_made_up() -> None:
    facts = facts_of(ORDER)
    verdict = check("Order ORD-7731 goes to Milan, lines SKU-4711; paid 1,310.00", facts, ("ord-7731", "310", "10121"))
    assert verdict.missing == ("310", "10121")
    assert set(verdict.foreign) == {"milan", "sku-4711", "1310"}
    assert not verdict.good and check("ORD-7731: 310, 10121", facts, ("ord-7731", "310", "10121")).good


@pytest.mark.parametrize(
    ("original", "summary"),
    [
        ({"total": 1200}, "1,200 in all"),
        ({"due": "2024-05-20"}, "due May 20"),
        ("Ship it to Café Roma by 15:05.", "Cafe\u0301 Roma, 3:05 PM"),
        ({"flight_number": "HAT136"}, "flight_number hat136"),
        ("电影《摔跤吧！爸爸》很感人", "《摔跤吧！爸爸》"),
    ],
)
def test_a_value_may_be_written_in_another_way(original: Any, summary: str) -> None:
    """C31 among them: composed and decomposed, full width and half."""
    assert check(summary, facts_of(original)).foreign == ()


NAMES = st.sampled_from(["id", "name", "price", "旅行", "items", "a.b", "x#1", "ORD-77120", "1234"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(
    ["HAT136", "2024-05-20", "Mia Li", "1,200.50", "sold out", "a@b.example", "订单号 A-7731", "line one\nline two"]
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=6))


@settings(max_examples=60)
@given(VALUES, st.integers(0, 3))
def test_whatever_a_result_is_its_summary_is_bounded_and_keeps_what_is_in_use(value: Any, every: int) -> None:
    facts = facts_of(value)
    used = tuple(found for fact in facts if (found := normal(fact.text)))[every :: every + 1][:8]
    said = summarize(facts, used=used)
    assert len(said) <= (LIMIT_IN_USE if used else LIMIT)
    assert said == summarize(facts, used=used)
    assert check(said, facts, used).missing == ()
