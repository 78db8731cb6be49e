"""Value tracing: what counts as a value, in which normal form, and what says nothing."""

from __future__ import annotations

from time import process_time

import pytest

from projections.cards.reading.facts import facts_of, opened
from projections.cards.reading.tokens import MAX_TEXT
from projections.cards.reading.values import MAX_VALUES, normal, of_json, of_text
from projections.cards.rules import CAUSAL, NOVELTY, excludes, worth
from projections.cards.summary import LIMIT, summarize


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("my user ID is mia_li_3668.", "mia_li_3668"),
        ("Flight HAT136, please", "hat136"),
        ("write to mia.li3818@example.com", "mia.li3818@example.com"),
        ("it costs $1,200 in all", "1200"),
        ("total 305.50", "305.5"),
        ("on 2024-05-20", "2024-05-20"),
        ("on May 20th", "--05-20"),
        ("on May 20, 2024", "2024-05-20"),
        ("on 20 May 2024", "2024-05-20"),
        ("the 3rd of June", "--06-03"),
        ("am 20.05.2024", "2024-05-20"),
        ("due 2024/05/20 please", "2024-05-20"),
        ("5월 20일에 출발", "--05-20"),
        ("it leaves at 3:05 PM", "15:05"),
        ("it leaves at 15:05:00", "15:05"),
        ("see src/app/main.py", "src/app/main.py"),
        ("from New York to Seattle", "new york"),
        ("订单号 A12345，目的地「北京」", "北京"),
        ("我的用户ID是mia_li_3668，价格1,200元", "mia_li_3668"),
        ("我的用户ID是mia_li_3668，价格1,200元", "1200"),
        ("我想订5月20日的票", "--05-20"),
        ("2026年5月20日出发", "2026-05-20"),
        ("文件在src/app/main.py中", "src/app/main.py"),
        ("ＡＢＣ１２３４ is full-width", "abc1234"),
    ],
)
def test_values_of_prose(text: str, value: str) -> None:
    """C31: full-width forms are the same value."""
    assert value in of_text(text)


@pytest.mark.parametrize("text", ["1", "true", "it was in 2024", "yes", "42", "The", "ok"])
def test_ubiquitous_values_say_nothing(text: str) -> None:
    assert of_text(text) == []


def test_numbers_are_equal_however_they_are_written() -> None:
    assert normal("1,200") == normal("1200") == normal("1200.0") == "1200"
    assert of_json({"a": 1200}) == of_json({"a": 1200.0}) == of_json({"a": "1,200"}) == ["1200"]
    assert normal("-1200") == "-1200"
    assert of_json([7, 99, 1999, True, None]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9 Luna", "cafe\u0301 Luna"), ("ＨＡＴ１３６", "hat136"), ("$1,200", "1200.00"), ("3:05 pm", "15:05"),
        ("Mia Li", "MIA LI"), ("2024-05-20", "2024/05/20"), ("12:30 AM", "00:30"), ("Straße Neun", "STRASSE NEUN"),
    ],
)  # fmt: skip
def test_equal_values_have_one_form(one: str, other: str) -> None:
    """C31: composed and decomposed accents, full and half width; case; numbers; times."""
    assert of_json([one]) == of_json([other]) != []


def test_a_day_is_found_with_and_without_its_year() -> None:
    assert set(of_json(["2024-05-20T06:00"])) == {"2024-05-20", "--05-20", "2024-05-20t06:00"}
    assert "--05-20" in of_text("May 20")


def test_values_of_json_come_from_leaves_and_telling_keys_in_order() -> None:
    value = {"payment_methods": {"credit_card_4421486": {"brand": "visa"}}, "city": "Austin", "address1": "x"}
    assert of_json(value) == ["credit_card_4421486", "visa", "austin"]


def test_a_leaf_of_chinese_prose_is_read_as_prose() -> None:
    assert of_json({"message": "抱歉，CA1501已售罄"}) == ["ca1501"]
    assert of_json({"city": "北京"}) == ["北京"]


def test_json_inside_text_is_opened_and_stays_exact() -> None:
    """C27: an integer beyond 64 bits is never a float."""
    assert opened('{"order_id": 9999999999999999999999}') == {"order_id": 9999999999999999999999}
    assert of_json('{"order_id": 9999999999999999999999}') == ["9999999999999999999999"]
    assert summarize(facts_of('{"order_id": 9999999999999999999999}')) == "order_id: 9999999999999999999999"


@pytest.mark.parametrize("text", ["[" * 5_000, "[" * 70 + "]" * 70, "{broken", '{"a": "\\u0000"}', "[1,,]"])
def test_text_that_only_looks_like_json_is_text(text: str) -> None:
    """C22, C26."""
    assert opened(text) is text


def test_work_is_bounded() -> None:
    assert len(of_json([f"id-{n}" for n in range(5_000)])) == MAX_VALUES
    assert len(of_text(" ".join(f"id-{n}" for n in range(50_000)))) == MAX_VALUES
    assert len(summarize(facts_of({f"field{n}": "x" * 50 for n in range(1_000)}))) <= LIMIT


@pytest.mark.parametrize("unit", ["a", "-", "a.", "A", "1", "a-", "/", "1,", "a@", "Ab ", "_", "1:", "“"])
def test_hostile_text_is_read_in_linear_time(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = (unit * chars)[:chars]
        start = process_time()
        of_text(text)
        return process_time() - start

    assert seconds(MAX_TEXT) < 1  # it takes 0.1 s; a quadratic scan of 32,768 characters took up to 60 s


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("Error: reservation not found", "error"),
        ('{"status": "sold out"}', "sold out"),
        ({"available": False}, "available: false"),
        ({"error": {"code": 3}}, "error"),
        ("抱歉，该航班已售罄", "售罄"),
        ({"flight": "HAT136", "status": "available"}, None),
        ({"error": None, "rows": [1]}, None),
        ("x" * 500 + " error", None),
    ],
)
def test_what_excludes_an_option(result: object, words: str | None) -> None:
    found = excludes(result)
    assert (found.words if found else None) == words


def test_worth_grows_with_uses_up_to_a_limit() -> None:
    assert worth({NOVELTY: 1}) == 1
    assert worth({NOVELTY: 1, CAUSAL: 2}) == 5
    assert worth({CAUSAL: 5}) == worth({CAUSAL: 50}) == 10
