"""Triggers of beliefs: what the door takes, and in which contexts they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import door
from events.errors import Refused
from events.triggers import MAX_DEPTH, MAX_TERMS, parse
from projections.policy.index import Index, ready
from projections.policy.predicate import Seen, holds

CONTEXT = {
    "agent": "coder",
    "goal": "Find the INVOICES of last month for 客户退款政策",
    "tool": "Refund",
    "tools": ["search", "book"],
    "step": 4,
    "price": "12.5",
    "dry": True,
    "note": "",
    "empty": [],
}


def _nested(depth: int) -> dict[str, Any]:
    trigger: dict[str, Any] = {"field": "tool", "is": "x"}
    for _ in range(depth - 1):
        trigger = {"not": trigger}
    return trigger


@pytest.mark.parametrize(
    "trigger",
    [
        {},
        {"field": "tool", "is": "refund"},
        {"field": "tool", "is": "ＲＥＦＵＮＤ"},
        {"field": "tools", "is": "book"},
        {"field": "agent", "in": ["x", "Coder"]},
        {"field": "goal", "has": "invoice"},
        {"field": "goal", "has": "month, last"},
        {"field": "goal", "has": "退款"},
        {"field": "step", "above": 3},
        {"field": "step", "is": 4.0},
        {"field": "step", "is": "4"},
        {"field": "price", "below": 13},
        {"field": "price", "is": 12.5},
        {"field": "dry", "is": True},
        {"not": {"field": "tool", "is": "search"}},
        {"not": {"field": "unheard_of", "is": "x"}},
        {"all": [{"field": "tool", "is": "refund"}, {"any": [{"field": "step", "is": 9}, {"field": "step", "is": 4}]}]},
    ],
)
def test_holds(trigger: dict[str, Any]) -> None:
    parse(trigger)
    assert holds(trigger, CONTEXT)


@pytest.mark.parametrize(
    "trigger",
    [
        {"field": "tool", "is": "refunds"},
        {"field": "tools", "is": "refund"},
        {"field": "agent", "in": ["x", "y"]},
        {"field": "goal", "has": "voice"},
        {"field": "goal", "has": "invoice yesterday"},
        {"field": "goal", "has": "策款"},
        {"field": "step", "above": 4},
        {"field": "step", "below": 4},
        {"field": "goal", "above": 1},
        {"field": "dry", "is": 1},
        {"field": "dry", "above": 0},
        {"field": "unheard_of", "is": "x"},
        {"field": "note", "has": "x"},
        {"field": "empty", "is": "x"},
        {"any": [{"field": "step", "is": 9}, {"field": "unheard_of", "below": 9}]},
        {"all": [{}, {}]},  # what nobody can read holds nowhere
        {"tool": "refund"},
    ],
)
def test_holds_not(trigger: dict[str, Any]) -> None:
    assert not holds(trigger, CONTEXT)


VALUES = st.sampled_from(
    ["refund", "ＲＥＦＵＮＤ", "4", "4.0", "last month", "退款政策", "", "true", 4, 5.5, True, False]
)
TERMS = st.builds(lambda field, value: {"field": field, "is": value}, st.sampled_from("ab"), VALUES.filter(bool)) | (
    st.builds(lambda field, value: {"field": field, "has": value}, st.sampled_from("ab"),
              st.sampled_from(["month", "refund last", "退款", "4"]))
    | st.builds(lambda field, value: {"field": field, "in": value}, st.sampled_from("ab"),
                st.lists(VALUES.filter(bool), min_size=1, max_size=3))
    | st.builds(lambda field, value: {"field": field, "above": value}, st.sampled_from("ab"), st.integers(0, 9))
)  # fmt: skip
TRIGGERS = st.just({}) | st.recursive(
    TERMS,
    lambda inner: st.builds(lambda word, parts: {word: parts}, st.sampled_from(["all", "any"]),
                            st.lists(inner, min_size=1, max_size=3)) | st.builds(lambda part: {"not": part}, inner),
    max_leaves=6,
)  # fmt: skip
CONTEXTS = st.dictionaries(st.sampled_from("abc"), VALUES | st.lists(VALUES, max_size=3))


@given(st.lists(TRIGGERS, max_size=8), CONTEXTS)
def test_the_index_misses_no_trigger_that_holds(triggers: list[dict[str, Any]], context: dict[str, Any]) -> None:
    holding = [place for place, trigger in enumerate(triggers) if holds(trigger, context)]
    assert set(holding) <= set(candidates := Index(map(ready, triggers)).candidates(Seen(context)))
    assert candidates == sorted(candidates)


def test_the_index_asks_few() -> None:
    triggers = [{"field": "tool", "is": f"t{n}"} for n in range(100)] + [{"field": "tool", "above": 3}, {"tool": 3}]
    index = Index(map(ready, triggers))
    assert index.candidates(Seen({"tool": "t7"})) == [7, 100]


def test_composed_and_decomposed_letters_are_one() -> None:
    """C31."""
    assert holds({"field": "goal", "has": "cafe\u0301"}, {"goal": "at the caf\u00e9"})
    assert holds({"field": "place", "is": "caf\u00e9"}, {"place": "CAFE\u0301"})


@pytest.mark.parametrize(
    ("trigger", "field", "said"),
    [
        ({"tool": "refund"}, "data.trigger", "it has `tool`"),
        ({"all": []}, "data.trigger.all", "an empty list"),
        ({"any": {}}, "data.trigger.any", "an empty object"),
        ({"any": ["x"]}, "data.trigger.any[0]", "not 'x'"),
        ({"all": [{}]}, "data.trigger.all[0]", "an empty object"),
        ({"not": []}, "data.trigger.not", "an empty list"),
        ({"not": None}, "data.trigger.not", "null"),
        ({"all": [{"field": "a", "is": 1}], "any": [{"field": "a", "is": 1}]}, "data.trigger", "`all`, `any`"),
        ({"field": "tool"}, "data.trigger", "exactly one of `is`"),
        ({"field": "tool", "is": "a", "has": "b"}, "data.trigger", "it has `field`, `is`, `has`"),
        ({"field": "tool", "equals": "a"}, "data.trigger", "`equals`"),
        ({"field": " ", "is": "a"}, "data.trigger.field", "not ' '"),
        ({"field": 3, "is": "a"}, "data.trigger.field", "not 3"),
        ({"field": "x" * 257, "is": "a"}, "data.trigger.field", "256 characters"),
        ({"field": "tool", "is": None}, "data.trigger.is", "null"),
        ({"field": "tool", "is": {"a": 1}}, "data.trigger.is", "object"),
        ({"field": "tool", "is": ""}, "data.trigger.is", "not ''"),
        ({"field": "tool", "in": []}, "data.trigger.in", "an empty list"),
        ({"field": "tool", "in": "abc"}, "data.trigger.in", "not 'abc'"),
        ({"field": "tool", "in": ["a", []]}, "data.trigger.in[1]", "an empty list"),
        ({"field": "goal", "has": "?!"}, "data.trigger.has", "not '?!'"),
        ({"field": "goal", "has": 5}, "data.trigger.has", "not 5"),
        ({"field": "step", "above": "3"}, "data.trigger.above", "must be a number, not '3'"),
        ({"field": "step", "below": True}, "data.trigger.below", "must be a number, not True"),
        (_nested(MAX_DEPTH + 1), "data.trigger" + ".not" * MAX_DEPTH, "deeper than 8"),
        ({"any": [{"field": "a", "is": n} for n in range(MAX_TERMS + 1)]}, "data.trigger", "65 terms"),
    ],
)
def test_what_nobody_can_read_is_refused_at_the_door(trigger: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(Refused, match="trigger") as refusal:
        door.admit(_proposed(trigger))
    assert (refusal.value.code, refusal.value.field) == ("bad_trigger", field)
    assert said in str(refusal.value) and len(str(refusal.value)) < 400


def test_the_largest_trigger_is_taken() -> None:
    door.admit(_proposed(_nested(MAX_DEPTH)))
    door.admit(_proposed({"any": [{"field": "a", "is": n} for n in range(MAX_TERMS)]}))


def _proposed(trigger: dict[str, Any]) -> dict[str, Any]:
    data = {"belief": "b", "kind": "learning", "statement": "s", "trigger": trigger}
    return {"id": "e1", "type": "belief.proposed", "agent": "a1", "data": data}
