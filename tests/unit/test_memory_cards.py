"""Memory cards: links by exact use, reasons, supersession, the way back, and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.memory_cards import MAX_LINKS, MEMORY_CARDS
from tests.unit.card_story import call, result, said, story, uses
from tests.unit.fold_runner import event, fold


def test_a_value_used_later_raises_the_card_it_came_from() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "find", {"q": "direct"}),
            result("c1", {"flight_number": "HAT136", "price": 152}),
            call("c2", "book", {"flight": "hat136"}, side_effect=True),
        ),
    )
    card = folded.one("cards", event_id="e1")
    assert card["reasons"] == {"novelty": 1, "causal_necessity": 1}
    assert (card["value"], card["uses"], card["n"]) == (3, 1, 1)
    use = folded.one("card_uses")
    assert (use["kind"], use["used_by"], use["name"], use["values"]) == ("call", "c2", "book", ["hat136"])


def test_changing_one_source_value_takes_exactly_its_link_away() -> None:
    def links(seat: str) -> dict[str, list[list[str]]]:
        return uses(
            fold(
                MEMORY_CARDS,
                story(
                    call("c1", "find", {"day": "x"}),
                    result("c1", {"flight": "HAT136"}),
                    call("c2", "seats", {"kind": "y"}),
                    result("c2", {"seat": seat}),
                    call("c3", "book", {"flight": "HAT136", "seat": "14C-9"}),
                ),
            )
        )

    assert links("14C-9") == {"e1": [["hat136"]], "e3": [["14c-9"]]}
    assert links("15D-1") == {"e1": [["hat136"]]}


@pytest.mark.parametrize("value", ["1", 1, True, "true", 2024, "2024", "yes", None])
def test_coincidental_values_make_no_link(value: Any) -> None:
    folded = fold(
        MEMORY_CARDS, story(call("c1"), result("c1", {"n": value, "id": "AB-77"}), call("c2", "f", {"n": value}))
    )
    assert folded.table("card_uses") == []


def test_a_decision_uses_earlier_cards_and_is_a_card() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            said("I must be in Princeton by May 24"),
            ("decision.made", {"chosen": "fly to EWR", "rationale": "closest to Princeton"}),
        ),
    )
    assert uses(folded) == {"e0": [["princeton"]]}
    assert folded.one("cards", source="decision")["reasons"] == {"state_change": 1, "novelty": 1}


def test_a_call_does_not_use_its_own_result_when_that_came_first() -> None:
    """C14."""
    folded = fold(
        MEMORY_CARDS, story(result("c1", {"id": "AB-77"}), call("c1", "get", {"id": "AB-77"}, side_effect=True))
    )
    card = folded.one("cards")
    assert (card["uses"], card["tool"]) == (0, "get")
    assert card["reasons"] == {"novelty": 1, "state_change": 1}


def test_failures_and_refusals_exclude_an_option() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "book"),
            result("c1", "Error: seat sold out"),
            call("c2", "pay"),
            ("tool.failed", {"call_id": "c2", "error": "card 4421-XX declined"}),
        ),
    )
    assert [card["excludes"] for card in sorted(folded.table("cards"), key=lambda c: c["n"])] == ["error", "failed"]
    assert all(card["reasons"]["option_constraint"] for card in folded.table("cards"))


def test_the_same_question_again_supersedes_and_keeps_the_older_answer() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "seats", {"flight": "HAT136"}),
            result("c1", {"left": 117}),
            call("c2", "seats", {"flight": "HAT136"}),
            result("c2", {"left": 116}),
        ),
    )
    old, new = folded.one("cards", event_id="e1"), folded.one("cards", event_id="e3")
    assert (old["status"], old["superseded_by"]) == ("superseded", new["card"])
    assert new["status"] == "active"
    assert old["summary"] == "left: 117"


def test_an_entity_is_superseded_only_by_what_says_at_least_as_much() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "details", {"r": 1}),
            result("c1", {"reservation_id": "ABC123", "cabin": "economy", "bags": 200}),
            call("c2", "note", {"r": 2}),
            result("c2", {"reservation_id": "ABC123", "note": "window"}),
            call("c3", "upgrade", {"r": 3}, side_effect=True),
            result("c3", {"reservation_id": "ABC123", "cabin": "business", "bags": 300, "fee": 150}),
        ),
    )
    status = {card["event_id"]: card["status"] for card in folded.table("cards")}
    assert status == {"e1": "superseded", "e3": "active", "e5": "active"}


def test_a_failure_does_not_supersede_what_was_known() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            call("c1", "seats", {"f": 1}),
            result("c1", {"left": 117}),
            call("c2", "seats", {"f": 1}),
            ("tool.failed", {"call_id": "c2", "error": "timeout after 3000 ms"}),
        ),
    )
    assert {card["status"] for card in folded.table("cards")} == {"active"}


def test_a_later_decision_on_the_same_question_supersedes() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(
            ("decision.made", {"question": "Which way?", "chosen": "train"}),
            ("decision.made", {"question": "which  way?", "chosen": "plane"}),
        ),
    )
    assert [card["status"] for card in sorted(folded.table("cards"), key=lambda c: c["n"])] == ["superseded", "active"]


def test_the_same_observation_again_is_seen_again_and_makes_no_card() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(call("c1", "get", {"a": 1}), result("c1", "HAT136 is on time"), call("c2", "get", {"a": 1}),
              result("c2", "HAT136 is on time")),
    )  # fmt: skip
    card = folded.one("cards")
    assert (card["seen"], card["as_of"], card["last_seen"]) == (2, "2026-03-01T10:00:01Z", "2026-03-01T10:00:03Z")


def test_an_empty_result_makes_no_card_unless_the_call_changed_something() -> None:
    assert fold(MEMORY_CARDS, story(call("c1"), result("c1", ""))).table("cards") == []
    assert fold(MEMORY_CARDS, story(call("c1", side_effect=True), result("c1", ""))).one("cards")["value"] == 2


def test_only_the_users_turns_become_cards() -> None:
    parts = [("message.added", {"role": role, "content": "HAT136"}) for role in ("system", "assistant", "tool")]
    assert fold(MEMORY_CARDS, story(*parts)).rows == {}
    assert fold(MEMORY_CARDS, story(said([{"type": "text", "text": "HAT136"}]))).one("cards")["summary"] == "HAT136"


def test_a_models_summary_stands_beside_the_extracted_one() -> None:
    raws = story(said("I fly with HAT136"))
    card = fold(MEMORY_CARDS, raws).one("cards")["card"]
    raws += [event("card.summarized", 9, task="t1", run="r1", card=card, summary="flies HAT136", model="m")]
    raws += [event("card.summarized", 10, task="t1", run="r1", card="nobody", summary="?", model="m")]
    row = fold(MEMORY_CARDS, raws).one("cards")
    assert (row["summary"], row["model_summary"], row["model"]) == ("I fly with HAT136", "flies HAT136", "m")


def test_one_call_id_used_again_links_each_result_to_its_own_call() -> None:
    folded = fold(
        MEMORY_CARDS,
        story(call("c1", "a", {"x": 1}), result("c1", "AA-11"), call("c1", "b", {"x": 2}), result("c1", "BB-22")),
    )
    assert [card["tool"] for card in sorted(folded.table("cards"), key=lambda c: c["n"])] == ["a", "b"]


def test_a_second_result_of_a_call_changes_nothing() -> None:
    """C20."""
    raws = story(call("c1"), result("c1", "AA-11"), result("c1", "BB-22"))
    assert fold(MEMORY_CARDS, raws).one("cards")["summary"] == "AA-11"


def test_links_of_one_event_are_bounded() -> None:
    parts = [said(f"id-{n}-x") for n in range(60)]
    folded = fold(MEMORY_CARDS, story(*parts, call("c1", "f", [f"id-{n}-x" for n in range(60)])))
    assert len(folded.table("card_uses")) == MAX_LINKS


def test_cards_of_two_tasks_never_share_an_id() -> None:
    raws = [event("message.added", 1, task=task, run="r", role="user", content="HAT136") for task in ("t1", "t2")]
    ids = {card["card"] for card in fold(MEMORY_CARDS, raws).table("cards")}
    assert len(ids) == 2


VALUES = st.sampled_from(["HAT136", "AB-77", "2024-05-20", "x", "1", "mia@example.com"])
PARTS = st.one_of(
    st.builds(said, VALUES),
    st.builds(lambda c, v: call(c, "f", {"v": v}), st.sampled_from(["c1", "c2"]), VALUES),
    st.builds(lambda c, v, w: result(c, {"id": v, "w": w}), st.sampled_from(["c1", "c2"]), VALUES, VALUES),
    st.builds(lambda v: ("decision.made", {"chosen": v, "question": "which?"}), VALUES),
)


@settings(max_examples=75, deadline=None)
@given(st.lists(PARTS, max_size=30), st.integers(1, 40))
def test_any_batch_split_gives_the_same_rows(parts: list[Any], batch: int) -> None:
    raws = story(*parts)
    assert fold(MEMORY_CARDS, raws, batch=batch).dump() == fold(MEMORY_CARDS, raws, batch=1).dump()


@settings(max_examples=50, deadline=None)
@given(st.lists(PARTS, max_size=30))
def test_counts_agree_with_the_rows_they_count(parts: list[Any]) -> None:
    folded = fold(MEMORY_CARDS, story(*parts))
    links = [row["card"] for row in folded.table("card_uses")]
    for card in folded.table("cards"):
        assert card["uses"] == links.count(card["card"]) == card["reasons"].get("causal_necessity", 0)
