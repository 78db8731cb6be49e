"""What may still be asked for, modes, and what waits until it is used."""

from __future__ import annotations

from typing import Any

import pytest

from projections.cards.kinds import kind_of
from projections.cards.needs import ahead, open_steps, parameters, readings
from projections.cards.reading.phrases import counted_as
from projections.memory_cards import MEMORY_CARDS
from tests.unit.card_story import Part, by_event, call, result, said, story, uses
from tests.unit.fold_runner import fold

SCHEMA = {"type": "object", "properties": {"user_id": {"type": "string"}, "flights": {
    "type": "array", "items": {"type": "object", "properties": {"flight_number": {"type": "string"}}}}}}  # fmt: skip


def started(mode: str = "default", tools: Any = None, digest: str = "d1") -> Part:
    """A run starts."""
    given = {} if tools is None and digest == "d1" else {"tools": {"digest": digest, "content": tools}}
    return ("run.started", {"mode": mode, **given})


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "book", "parameters": SCHEMA}}],
        [{"name": "book", "input_schema": SCHEMA}],
        {"tools": [{"name": "book", "inputSchema": SCHEMA}]},
    ],
)
def test_parameters_of_declared_tools(tools: Any) -> None:
    assert parameters(tools) == {
        "user_id": ["book", "user_id"], "flight": ["book", "flights"], "flight_number": ["book", "flight_number"],
    }  # fmt: skip


@pytest.mark.parametrize("tools", [None, "text", 3, [[[[[{"name": "x", "parameters": SCHEMA}]]]]], [{"name": 3}]])
def test_what_declares_no_tools_declares_none(tools: Any) -> None:
    assert parameters(tools) == {}


@pytest.mark.parametrize("field", ["user_id", "userId", "UserID", "users.id", "data.user_id", "users.*.id"])
def test_one_name_is_written_in_many_ways(field: str) -> None:
    assert ahead([field], {"parameters": {"user_id": ["book", "user_id"]}, "steps": None}) == [
        [field, "book", "user_id"]
    ]


@pytest.mark.parametrize("field", ["user_name", "idle_user", "id", "", "*", "....", "👍"])
def test_other_names_are_not_that_one(field: str) -> None:
    assert ahead([field], {"parameters": {"user_id": ["book", "user_id"]}, "steps": None}) == []


def test_an_open_step_asks_for_what_its_title_names() -> None:
    steps = open_steps({}, {"s1": "Find the flight number", "s2": "Pay with the payment method"})
    needs = {"parameters": None, "steps": steps}
    assert ahead(["flight_number", "payment_methods", "name", "number"], needs) == [
        ["flight_number", "s1", ""], ["payment_methods", "s2", ""],
    ]  # fmt: skip
    assert readings("a.b") == ("b", "a_b")


def test_a_result_is_needed_ahead_by_a_declared_tool_and_by_an_open_step() -> None:
    tools = [{"name": "book", "input_schema": SCHEMA}]
    plan: Part = ("plan.updated", {"steps": [{"id": "s1", "title": "choose the seat map"}, {"id": "s2", "title": "x"}]})
    parts = [
        started(tools=tools), plan, call("c1"), result("c1", {"userId": "mia-77"}),
        call("c2"), result("c2", {"seat_map": "A320-9"}),
        ("step.completed", {"step": "s1"}), call("c3"), result("c3", {"seat_map": "B737-8"}),
    ]  # fmt: skip
    cards = by_event(fold(MEMORY_CARDS, story(*parts)))
    assert cards["e3"]["ahead"] == [["userId", "book", "user_id"]]
    assert cards["e3"]["reasons"] == {"novelty": 1, "needed_ahead": 1}
    assert cards["e5"]["ahead"] == [["seat_map", "s1", ""]]
    assert cards["e8"]["ahead"] is None


def test_tools_are_known_by_their_digest_once_their_content_was_seen() -> None:
    tools = [{"name": "book", "input_schema": SCHEMA}]

    def asked(*starts: Part) -> bool:
        parts = [*starts, call("c1"), result("c1", {"user_id": "mia-77"})]
        return fold(MEMORY_CARDS, story(*parts)).one("cards")["ahead"] is not None

    assert asked(started(tools=tools, digest="a"), started(digest="a"))
    assert not asked(started(tools=tools, digest="a"), started(digest="b"))  # other tools, which nobody saw
    assert not asked(started(digest="a"))


@pytest.mark.parametrize(
    ("value", "field", "kind"),
    [
        ("2024-05-20", "date", "time"), ("--05-20", "", "time"), ("06:00:00", "departure", "time"),
        ("austin", "address.city", "place"), ("src/app/main.py", "", "place"), ("北京", "目的地", "place"),
        ("hat136", "flight", "id"), ("mia@example.com", "", "id"), ("4421", "order_id", "id"),
        ("305.5", "price", "number"), ("mia li", "name", "name"),
    ],
)  # fmt: skip
def test_classes_of_values(value: str, field: str, kind: str) -> None:
    assert kind_of(value, field) == kind


@pytest.mark.parametrize(
    ("mode", "value", "points"),
    [
        ("default", {"city": "Austin"}, 1), ("precise_planning", {"city": "Austin"}, 2),
        ("precise_planning", {"n": 42, "mood": "so so, la la, more or less fine"}, 1),
        ("information_gathering", {"author": "Mia Li"}, 2), ("creative", {"order_id": "AB-7712"}, 0),
        ("creative", "warm light, a long shadow, and nobody there", 2), ("of_the_future", {"city": "Austin"}, 1),
        ("default", {"status": "ok", "done": True}, 0), ("default", "ok", 0), ("default", "", 0),
    ],
)  # fmt: skip
def test_modes_weigh_what_is_new_by_its_class(mode: str, value: Any, points: int) -> None:
    start: Part = started(mode) if mode != "of_the_future" else started()
    folded = fold(MEMORY_CARDS, story(start, call("c1"), result("c1", value)))
    assert [card["value"] for card in folded.table("cards")] == ([points] if points else [])


def test_a_late_use_makes_a_card_of_a_result_that_had_none() -> None:
    parts = [started("creative"), call("c1", "order"), result("c1", {"order_id": "AB-7712"})]
    quiet = fold(MEMORY_CARDS, story(*parts))
    assert quiet.table("cards") == []
    assert [row["row"]["event_id"] for row in quiet.table("card_latent")] == ["e2"]

    folded = fold(MEMORY_CARDS, story(*parts, said("and now?"), call("c2", "ship", {"order": "ab-7712"})))
    card = by_event(folded)["e2"]
    assert card["reasons"] == {"causal_necessity": 1}
    assert (card["n"], card["changed_n"], card["tool"], card["uses"]) == (2, 4, "order", 1)
    assert card["facts"] == [["order_id", "", "AB-7712"]]
    assert uses(folded) == {"e2": [["ab-7712"]]}
    assert [row["row"]["event_id"] for row in folded.table("card_latent")] == ["e3"]  # what was said told nothing


def test_a_use_tells_which_field_went_into_which_parameter() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "search", {"q": "direct"}),
            result("c1", {"flights": [{"flight_number": "HAT136", "price": 152}, {"flight_number": "HAT201"}]}),
            said("the second, for Mia Li"),
            call("c2", "book", {"legs": [{"number": "HAT201"}], "passenger": {"name": "Mia Li"}}),
        ),
    )
    links = {use["n"]: use["links"] for use in folded.table("card_uses") if use["values"] == ["hat201"]}
    assert links == {3: [["hat201", "flights.flight_number", "legs.number"]]}
    counts = folded.one("card_flows", used_by="book")["counts"]
    assert {tuple(name.split("\x1f")): n for name, n in counts.items()} == {
        ("search", "flights.flight_number", "legs.number"): 1, ("user", "", "passenger.name"): 1,
    }  # fmt: skip
    assert {row["used_by"]: row["after"] for row in folded.table("card_flows")} == {
        "search": {"": 1},
        "book": {"search": 1},
    }


def test_flows_hold_names_and_no_values() -> None:
    """A key that is a value is no name; names with marks of our own in them are names all the same."""
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "who"),
            result("c1", {"cards": {"card_4421486": {"brand": "VISA-9"}}, "a\x1fb\nc": "K-123"}),
            call("c2", "pay", {"x\x1fy": "card_4421486", "z": ["VISA-9", "K-123"]}),
        ),
    )  # fmt: skip
    assert not any(value in str(folded.table("card_flows")).casefold() for value in ("4421486", "visa-9", "k-123"))
    counts = folded.one("card_flows", used_by="pay")["counts"]
    assert sorted(name.split("\x1f") for name in counts) == [
        ["who", "a b c", "z"], ["who", "cards", "x y"], ["who", "cards.*.brand", "z"],
    ]  # fmt: skip


def test_values_of_prose_are_counted_under_the_words_before_them_which_are_told_to_nobody() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "find"),
            result("c1", "Ada Byron: 88-1204. The order number #W7741 is open."),
            call("c2", "cancel", {"order": "W7741", "account": "88-1204"}),
        ),
    )
    counts = folded.one("card_flows", used_by="cancel")["counts"]
    assert {tuple(name.split("\x1f")) for name in counts} == {
        *(("find", name, "order") for name in counted_as("order number")),
        *(("find", name, "account") for name in counted_as("Ada Byron")),
    }
    assert "byron" not in str(counts).casefold() and "order number" not in str(counts)
    assert [use["links"] for use in folded.table("card_uses")] == [[["w7741", "", "order"], ["88-1204", "", "account"]]]


def test_a_summary_is_made_again_for_a_value_that_it_left_out() -> None:
    rows = [{"flight_number": f"HAT{100 + n}", "aircraft": f"type-{n}-{n * 7}", "note": "x" * 30} for n in range(60)]
    parts = [call("c1", "search"), result("c1", rows)]
    before = fold(MEMORY_CARDS, story(*parts)).one("cards")
    assert "HAT157" not in before["summary"]
    after = by_event(fold(MEMORY_CARDS, story(*parts, call("c2", "book", {"f": "HAT157"}))))["e1"]
    assert "HAT157" in after["summary"]
    assert after["used"] == ["hat157"]
