"""Facts: values with their names and records, spelled as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.reading.facts import MAX_FACTS, SHORT, Fact, facts_of

ORDER = {
    "order_id": "ORD-7731",
    "total": 1249.5,
    "paid": True,
    "note": None,
    "items": [{"sku": "LAMP-2", "price": 49}, {"sku": "DESK-9", "price": 1200.5, "sizes": [80, 160]}],
    "tags": ["gift", "fragile"],
}


def test_names_leave_indices_out_and_records_keep_them() -> None:
    assert facts_of(ORDER) == [
        Fact("order_id", "", "ORD-7731"),
        Fact("total", "", "1249.5"),
        Fact("paid", "", "true"),
        Fact("note", "", "null"),
        Fact("items.sku", "items.0", "LAMP-2"),
        Fact("items.price", "items.0", "49"),
        Fact("items.sku", "items.1", "DESK-9"),
        Fact("items.price", "items.1", "1200.5"),
        Fact("items.sizes", "items.1", "80"),
        Fact("items.sizes", "items.1", "160"),
        Fact("tags", "", "gift"),
        Fact("tags", "", "fragile"),
    ]


def test_json_in_a_text_says_the_same_and_json_within_it_too() -> None:
    assert facts_of(json.dumps(ORDER)) == facts_of(ORDER)
    inside = {"status": 200, "body": json.dumps({"id": "u-17"})}
    assert facts_of(json.dumps(inside)) == [Fact("status", "", "200"), Fact("body.id", "body", "u-17")]


def test_json_in_json_in_json_is_opened_no_further() -> None:
    text = json.dumps({"a": json.dumps({"b": json.dumps({"c": "deep"})})})
    assert facts_of(text) == [Fact("a.b", "a", '{"c": "deep"}')]


@pytest.mark.parametrize("text", ["9999999999999999999999", "1.10", "1e3", "0.30", "-0.0", "12345678901234567890.50"])
def test_numbers_stand_as_they_were_written(text: str) -> None:
    """C27: no number becomes another one, however long it is."""
    assert facts_of(f'{{"order_id": {text}}}') == [Fact("order_id", "", text)]


def test_an_id_as_a_key_is_a_value_and_no_name() -> None:
    value = {
        "methods": {"card_4421486": {"brand": "visa"}, "gift_99120": {"amount": 20}},
        "seats": {"12C-4417": "taken"},
    }
    assert facts_of(value) == [
        Fact("methods", "methods.card_4421486", "card_4421486"),
        Fact("methods.*.brand", "methods.card_4421486", "visa"),
        Fact("methods", "methods.gift_99120", "gift_99120"),
        Fact("methods.*.amount", "methods.gift_99120", "20"),
        Fact("seats", "seats.12C-4417", "12C-4417"),
        Fact("seats.*", "seats.12C-4417", "taken"),
    ]


def test_the_keys_of_a_table_of_like_objects_are_values() -> None:
    rooms = {name: {"floor": floor} for floor, name in enumerate(("oak", "elm", "ash"))}
    assert [fact.text for fact in facts_of(rooms)] == ["oak", "0", "elm", "1", "ash", "2"]
    assert {fact.field for fact in facts_of(rooms)} == {"", "*.floor"}


@pytest.mark.parametrize("name", ["address1", "ipv6", "address2_line", "数量", "Unit Price", "x"])
def test_a_name_with_a_digit_or_two_stays_a_name(name: str) -> None:
    assert facts_of({name: "v"}) == [Fact(name, "", "v")]


def test_a_matrix_keeps_its_rows_together() -> None:
    assert [(fact.record, fact.text) for fact in facts_of({"m": [[1, 2], [3]]})] == [
        ("m.0", "1"), ("m.0", "2"), ("m.1", "3"),
    ]  # fmt: skip


def test_a_long_text_in_a_field_comes_sentence_by_sentence() -> None:
    story = "The parcel left Lyon. It reached Turin on Friday. " * 6
    assert len(story) > SHORT
    facts = facts_of({"history": story})
    assert facts[1] == Fact("history", "history#1", "It reached Turin on Friday.")
    assert len(facts) == 12


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Order A-17 has shipped. It weighs 3.5 kg, says Dr. Weiss. See e.g. page 2.",
         ["Order A-17 has shipped.", "It weighs 3.5 kg, says Dr. Weiss.", "See e.g. page 2."]),
        ("订单已发货。单号是A123！请查收？好的", ["订单已发货。", "单号是A123！", "请查收？", "好的"]),
        ("我看了《摔跤吧！爸爸》。很感人。", ["我看了《摔跤吧！爸爸》。", "很感人。"]),
        ("「届きました。」ありがとう。", ["「届きました。」", "ありがとう。"]),
        ("यह पहला वाक्य है। दूसरा १२३ है।", ["यह पहला वाक्य है।", "दूसरा १२३ है।"]),
        ("هل وصل الطلب؟ نعم. رقم ١٢٣۔ تم", ["هل وصل الطلب؟", "نعم.", "رقم ١٢٣۔", "تم"]),
        ("ትዕዛዙ ደርሷል። ቁጥሩ 77 ነው።", ["ትዕዛዙ ደርሷል።", "ቁጥሩ 77 ነው።"]),
        ("1. Open the box\n\n2. Read it\r\n3. Close it", ["1. Open the box", "2. Read it", "3. Close it"]),
    ],
)  # fmt: skip
def test_prose_comes_in_sentences_of_its_language(text: str, parts: list[str]) -> None:
    assert facts_of(text) == [Fact("", str(n), part) for n, part in enumerate(parts)]


def test_text_without_an_end_of_sentence_is_cut_between_words_or_graphemes() -> None:
    """C30: never within a grapheme, and nothing is lost."""
    thai = "คำสั่งซื้อหมายเลข 8812 " * 40
    pieces = [fact.text for fact in facts_of(thai)]
    assert len(pieces) > 1 and " ".join(pieces) == thai.strip()
    family = "👨‍👩‍👧‍👦"
    pieces = [fact.text for fact in facts_of(family * 150)]
    assert len(pieces) > 1 and all(piece == family * (len(piece) // len(family)) for piece in pieces)


@pytest.mark.parametrize(
    "value", [[{"n": n} for n in range(3_000)], {str(n): n for n in range(3_000)}, "One. " * 3_000, [["x"] * 9_000]]
)
def test_there_are_only_so_many(value: Any) -> None:
    assert len(facts_of(value)) == MAX_FACTS


def deep(levels: int, name: str) -> Any:
    return {name: deep(levels - 1, name)} if levels else {f"n{n}": n for n in range(600)}


@pytest.mark.parametrize(
    "value",
    [
        {"k" * 500_000: {f"n{n}": n for n in range(600)}},
        {"k" * 500_000: 1},
        deep(60, "k" * 64),
        deep(60, "card_4421486"),
        {"x" * 65: {"y" * 65: {"z" * 65: "v"}}},
    ],
)
def test_names_of_any_length_take_little_room(value: Any) -> None:
    """C29: what stands in rows and their keys is bounded, whatever the names are."""
    facts = facts_of(value)
    assert facts and sum(len(part) for fact in facts for part in fact) < 2_000_000
    assert all(len(fact.field) + len(fact.record) < 1_200 for fact in facts)


@pytest.mark.parametrize("digits", [400, 4_000, 4_400, 50_000])
def test_numbers_of_any_length_are_read_or_left_as_text(digits: int) -> None:
    text = f'{{"n": {"7" * digits}}}'
    assert "".join(fact.text for fact in facts_of(text)).strip('{}":n ') in (text, "7" * digits)


@pytest.mark.parametrize(
    ("value", "texts"), [("", []), ({}, []), ([], []), (None, ["null"]), (255.5, ["255.5"]), ("[1", ["[1"])]
)
def test_small_values(value: Any, texts: list[str]) -> None:
    assert [fact.text for fact in facts_of(value)] == texts


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=300)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5)
)


@given(VALUES)
def test_any_value_has_facts_and_the_same_ones_each_time(value: Any) -> None:
    facts = facts_of(value)
    assert facts == facts_of(value)
    assert all(fact.text for fact in facts) and len(facts) <= MAX_FACTS
