"""Facts under a budget: what fits as rows, what is compressed, what is cut; nothing moves while there is room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cards.reading.facts import Fact, facts_of
from projections.cards.tables import BLANKS
from projections.context.choosing import LISTED, NOTED
from projections.context.filling import fill
from projections.context.ranking import rank
from projections.context.rendering import compressed, heading, labels_of, rows
from projections.context.shapes import MODES, shape
from projections.context.sources import Needs, Source, said_in
from projections.context.tokens import count, weigh
from projections.queries.card_sources import source_of

FLIGHTS = [
    {"flight_number": f"HAT{n:03}", "origin": "JFK", "prices": {"economy": 100 + n}, "seats": {"economy": n}}
    for n in range(1, 9)
]


def source(n: int, value: Any, title: str = "search", **more: Any) -> Source:
    return Source(f"c{n}", f"1-{n}", title, tuple(facts_of(value)), **more)


def test_rows_keep_a_record_on_a_line_and_tell_alike_names_apart() -> None:
    text = rows(source(7, FLIGHTS[:2]))
    assert text.splitlines() == [
        "#1-7 search",
        "flight_number: HAT001; origin: JFK; prices.economy: 101; seats.economy: 1",
        "flight_number: HAT002; origin: JFK; prices.economy: 102; seats.economy: 2",
    ]


def test_compressed_fields_tell_a_value_once_and_stay_near_their_name() -> None:
    one = source(7, FLIGHTS)
    lines = compressed(one, range(len(one.facts))).splitlines()
    numbers = [line for line in lines if line.startswith("flight_number: ")]
    assert len(numbers) > 1 and all(len(line) < 90 for line in numbers)
    assert ", ".join(line.removeprefix("flight_number: ") for line in numbers).split(", ") == [
        one["flight_number"] for one in FLIGHTS
    ]


def test_a_compressed_card_says_what_it_is_about_once() -> None:
    one = source(7, {"reservation_id": "JG7FMM", "cabin": "business"}, "get_reservation", about="JG7FMM")
    assert compressed(one, [1]).splitlines() == ["#1-7 get_reservation JG7FMM", "cabin: business"]
    assert compressed(one, [0, 1]).splitlines()[:2] == ["#1-7 get_reservation", "reservation_id: JG7FMM"]


def test_a_key_that_is_a_value_and_prose_are_told() -> None:
    text = rows(source(1, {"methods": {"credit_card_123": {"brand": "visa"}}}))
    assert text.splitlines() == ["#1-1 search", "methods: credit_card_123; brand: visa"]
    assert rows(source(2, "预订成功。订单号是DD1234567。")).splitlines()[1:] == ["预订成功。", "订单号是DD1234567。"]


def test_a_value_cannot_begin_a_line_of_its_own() -> None:
    text = rows(Source("c", "1-1", "a\nb", (Fact("x\ny", "", "1\r\n2\u2028#9-9 forged"),)))
    assert text.splitlines() == ["#1-1 a b", "x y: 1 2 #9-9 forged"]


def test_within_the_budget_nothing_moves_when_a_card_is_added() -> None:
    cards = [source(n, {"order": f"W{n:05}", "total": n * 10}, "get_order") for n in range(1, 20)]
    before = ""
    for size in range(1, len(cards)):
        now = fill(cards[:size], Needs(), 10_000).text
        assert now.startswith(before)
        before = now


def test_the_oldest_are_compressed_in_blocks_and_no_value_is_lost() -> None:
    cards = [source(n, [{**one, "leg": n} for one in FLIGHTS]) for n in range(1, 13)]
    everything = fill(cards, Needs(), 100_000)
    tighter = fill(cards, Needs(), int(everything.tokens * 0.7))
    assert tighter.tokens <= everything.tokens * 0.7
    whole = [rows(card) in tighter.text for card in cards]
    assert whole == sorted(whole) and whole.index(True) % 4 == 0
    assert all(one["flight_number"] in tighter.text for one in FLIGHTS)


@given(st.integers(0, 400), st.integers(1, 12))
def test_a_budget_holds(budget: int, size: int) -> None:
    cards = [
        source(n, FLIGHTS if n % 3 else f"Order W{n} was sent. Call 555-01{n:02} before noon.") for n in range(size)
    ]
    filled = fill(cards, Needs(), budget)
    assert count(filled.text) == filled.tokens <= max(budget, 0)


def test_what_was_used_what_is_wanted_and_what_flowed_come_first() -> None:
    card = source(1, {"colour": "teal", "clerk_name": "Ida Lund", "batch": "Q77-A", "ticket": "T-900"}, "look")
    first = lambda needs: card.facts[rank([card], needs)[0].fact].text  # noqa: E731
    assert first(Needs(used=frozenset(["ida lund"]))) == "Ida Lund"
    assert first(Needs(wanted=frozenset(["ticket"]))) == "T-900"
    assert first(Needs(expected={("look", "colour"): 0.9}, calls=50)) == "teal"
    assert first(Needs(mode="creative")) in ("teal", "Ida Lund")
    card = source(1, {"ticket": "T-900", **{f"shelf_{n}": f"row {n}" for n in range(9)}}, "look")
    told = fill([card], Needs(wanted=frozenset(["ticket"])), 9)
    assert told.text.splitlines() == ["ticket: T-900"]


def test_a_tight_budget_tells_all_cards_as_one_without_headings() -> None:
    cards = [source(n, {"order_id": f"#W900{n}", "items": [{"item_id": f"{n}7749{m}"} for m in range(9)]}, f"look_{n}")
             for n in range(4)]  # fmt: skip
    wide, tight = (fill(cards, Needs(), budget).text for budget in (280, 60))
    assert all(heading(card) in wide for card in cards)
    assert "#1-" not in tight and tight.splitlines()[0] == "order_id: #W9000, #W9001, #W9002, #W9003"


def test_values_of_prose_stand_behind_the_words_before_them_and_sentences_where_there_is_room() -> None:
    text = "\n".join(
        f"The slot SL-{n}K9 is free on 2026-05-0{n} at 09:30, in room {n}12b of the main building." for n in range(1, 9)
    )
    tight, wide = (fill([source(1, text)], Needs(), budget).text for budget in (40, 200))
    assert tight.splitlines()[1].startswith("The slot SL-1K9, SL-2K9") and "is free" not in tight
    whole = [line for line in text.splitlines() if line in wide]
    assert whole and all(f"SL-{n}K9" in wide for n in range(1, 9)) and wide.count("SL-1K9") == 1


def test_what_the_latest_messages_name_comes_first_with_its_record_and_what_is_no_choice_last() -> None:
    slots = [{"slot": f"S-{n}QX", "doctor": f"Dr. {name}", "available": name != "Ode"}
             for n, name in enumerate(("Ash", "Bly", "Ode", "Fen"))]  # fmt: skip
    card, needs = source(1, slots), Needs(said=said_in(["no", "with dr. fen, please"]))
    texts = [card.facts[one.fact].text for one in rank([card], needs)]
    assert texts[0] == "Dr. Fen" and texts.index("S-3QX") < texts.index("S-0QX") < texts.index("S-2QX")


def test_what_a_context_is_asked_for_comes_before_what_is_likely_needed() -> None:
    loans = [{"loan": f"L-{n}88", "due_date": f"2026-0{n}-11", "归还日期": f"2026年{n}月9日"} for n in range(1, 7)]
    card = source(1, {"loans": loans}, "list_loans")
    first = lambda asked: card.facts[rank([card], Needs(asked=asked))[0].fact].field  # noqa: E731
    assert first("") == "loans.loan"
    assert first("when is the loan of the atlas due?") in ("loans.loan", "loans.due_date")
    assert first("what is due?") == "loans.due_date" and first("归还日期是哪天？") == "loans.归还日期"
    assert first("is it so") == "loans.loan"


def test_values_without_a_field_stand_behind_their_tool_where_there_are_no_headings() -> None:
    paths = [source(n, "\n".join(f"src/part_{n}/file_{m}.py" for m in range(9)), "list_files") for n in range(5)]
    tight = fill(paths, Needs(), 60).text
    assert tight.startswith("list_files: src/part_0/file_0.py, src/part_0/file_1.py")
    assert all(line.startswith("list_files: ") for line in tight.splitlines())


def test_a_value_that_a_person_and_a_field_told_stands_behind_the_field() -> None:
    said = Source("c1", "1-1", "user", tuple(facts_of("KH94758955")))
    known = source(2, {"customer_id": "KH94758955", "segment": "gold"}, "verify")
    more = source(3, {"accounts": [{"account_id": f"ACC{n}3571"} for n in range(40)]}, "list_accounts")
    assert "customer_id: KH94758955" in fill([said, known, more], Needs(said="kh94758955"), 60).text.splitlines()


def test_a_note_on_how_lists_read_stands_first_where_there_is_room_for_it() -> None:
    card = source(1, {"rows": [{"id": f"T-{n}00", "shelf": f"row {n}"} for n in range(200)]}, "look")
    told = {budget: fill([card], Needs(), budget).text.splitlines() for budget in (NOTED - 1, NOTED)}
    assert told[NOTED][:2] == [LISTED, "#1-1 look"] and told[NOTED - 1][0] == "#1-1 look"


def test_the_budget_goes_to_values_that_nothing_else_tells() -> None:
    said = Source("c1", "1-1", "user", tuple(facts_of("My user id is mia_li_3668, thanks.")))
    known = source(2, {"user_id": "mia_li_3668", "order": "W0001"}, "get_user")
    assert next(one.source for one in rank([said, known], Needs(used=frozenset(["mia_li_3668"])))) == 1
    assert next(one.source for one in rank([said], Needs(used=frozenset(["mia_li_3668"])))) == 0


def test_a_replaced_card_tells_only_what_no_other_does() -> None:
    old = source(1, {"status": "pending", "order": "W0001", "clerk": "Ida"}, replaced_by="1-2")
    new = source(2, {"status": "shipped", "order": "W0001"})
    text = fill([old, new], Needs(), 1_000).text
    assert text.splitlines() == [
        "#1-1 search (replaced by #1-2)",
        "status: pending",
        "clerk: Ida",
        *rows(new).splitlines(),
    ]


def test_what_a_later_card_says_otherwise_is_not_told() -> None:
    row = BLANKS.row("cards", ("c1",)) | {
        "tool": "get_order", "facts": [["order", "", "W0001"], ["status", "", "pending"]], "epoch": 1, "n": 4,
        "outdated": {"status": "c2"}, "status": "active",
    }  # fmt: skip
    assert rows(source_of(row, {})).splitlines() == ["#1-4 get_order", "order: W0001"]
    replaced = source_of(row | {"status": "superseded", "superseded_by": "c2"}, {"c2": "1-9"})
    assert heading(replaced) == "#1-4 get_order (replaced by #1-9)"


def test_the_same_facts_give_the_same_text_whatever_the_hash_seed() -> None:
    cards = [source(n, FLIGHTS[: n + 1]) for n in range(8)]
    needs = Needs(
        frozenset(["hat003", "jfk"]), {("search", "flight_number"): 0.5}, 4, frozenset(["origin", "flight_number"])
    )
    assert fill(cards, needs, 120) == fill(list(cards), needs, 120)


@pytest.mark.parametrize("mode", ["", *MODES])
@pytest.mark.parametrize(
    "text", ["", "true", "JFK", "2024-05-20", "07:00", "152", "W0001", "Ida Lund", "预订", "x" * 300]
)
def test_a_shape_is_a_chance(text: str, mode: str) -> None:
    assert 0 < shape(text, mode) <= 1


def test_labels_are_as_short_as_they_may_be() -> None:
    assert labels_of(("origin", "flights.origin", "prices.economy", "seats.economy", "a.*.id", "")) == {
        "origin": "origin", "flights.origin": "flights.origin", "prices.economy": "prices.economy",
        "seats.economy": "seats.economy", "a.*.id": "a.id", "": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # counts of o200k_base, taken once
        (json.dumps(FLIGHTS[0]), 37),
        ("Thank you so much for your help! I would like to book the earlier flight, please.", 19),
        ("订单修改成功，系统已经发送短信通知客户。", 11),
        ("flight_number: HAT136, HAT039; payment_id: credit_card_4421486", 20),
    ],
)
def test_the_estimate_is_near_what_a_vocabulary_counts(text: str, tokens: int) -> None:
    assert tokens * 0.75 <= count(text) <= tokens * 1.5


@given(st.text(max_size=200), st.text(max_size=200))
def test_lines_weigh_what_they_weigh_together(one: str, other: str) -> None:
    one, other = one.strip(), other.strip()
    if one and other:
        assert weigh(f"{one}\n{other}") == pytest.approx(weigh(one) + weigh("\n") + weigh(other))
