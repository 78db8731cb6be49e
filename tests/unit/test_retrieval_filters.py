"""Filters: trees of conditions, and errors that say where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.errors import Refused
from projections.retrieval.entry import Entry, entry_of
from projections.retrieval.filters import MAX_CONDITIONS, MAX_DEPTH, compile_filter
from tests.unit.retrieval_lab import row


def entry(**columns: Any) -> Entry:
    given = {"tool": "search", "value": 5, "uses": 2, "values": ["hat136", "220"], "fields": ["price", "seat"]}
    return entry_of(row("c1", "a flight", entity=["flight_id", "hat136"], **{**given, **columns}))


@pytest.mark.parametrize(
    ("tree", "holds"),
    [
        ({}, True),
        (None, True),
        ({"tool": "search"}, True),
        ({"tool": "book"}, False),
        ({"tool": ["book", "search"]}, True),
        ({"tool": {"ne": "book", "prefix": "sea"}}, True),
        ({"tool": {"not_in": ["search"]}}, False),
        ({"tool": "search", "value": 4}, False),
        ({"value": {"gte": 5, "lt": 6}}, True),
        ({"value": {"gt": 5}}, False),
        ({"value": {"lte": 4.5}}, False),
        ({"uses": {"exists": True}}, True),
        ({"session": {"exists": True}}, False),
        ({"values": "HAT136"}, True),
        ({"values": {"has": "HAT 137"}}, False),
        ({"values": {"in": ["x", 220]}}, True),
        ({"entity": "HAT136"}, True),
        ({"fields": "price"}, True),
        ({"fields": {"has": "Price"}}, False),
        ({"as_of": {"gte": "2026-03-01T11:00:00+01:00", "lt": "2026-03-02T00:00:00Z"}}, True),
        ({"as_of": {"lt": "2026-03-01T10:00:00Z"}}, False),
        ({"not": {"tool": "book"}}, True),
        ({"or": [{"tool": "book"}, {"value": {"gte": 5}}]}, True),
        ({"and": [{"tool": "search"}, {"not": {"value": 5}}]}, False),
        ({"or": []}, False),
        ({"and": []}, True),
    ],
)
def test_what_holds(tree: Any, holds: bool) -> None:
    assert compile_filter(tree)(entry()) is holds


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ([], "filter"),
        ({"toool": "x"}, "filter.toool"),
        ({"or": {"tool": "x"}}, "filter.or"),
        ({"or": [{"tool": "x"}, {"value": {"gte": "3"}}]}, "filter.or[1].value.gte"),
        ({"not": [1]}, "filter.not"),
        ({"tool": 3}, "filter.tool.eq"),
        ({"tool": {"gt": "a"}}, "filter.tool.gt"),
        ({"tool": {}}, "filter.tool"),
        ({"tool": {"in": "search"}}, "filter.tool.in"),
        ({"value": True}, "filter.value.eq"),
        ({"value": {"between": [1, 2]}}, "filter.value.between"),
        ({"values": {"eq": "x"}}, "filter.values.eq"),
        ({"values": {"has": {}}}, "filter.values.has"),
        ({"as_of": {"gte": "2026-03-01T10:00:00"}}, "filter.as_of.gte"),
        ({"as_of": 5}, "filter.as_of.eq"),
        ({"uses": {"exists": 1}}, "filter.uses.exists"),
    ],
)
def test_what_is_wrong_is_refused_with_the_way_to_it(tree: Any, where: str) -> None:
    with pytest.raises(Refused) as refused:
        compile_filter(tree)
    assert refused.value.field == where and where in str(refused.value)


def test_depth_and_number_of_conditions_are_bounded() -> None:
    deep: dict[str, Any] = {"tool": "x"}
    for _ in range(MAX_DEPTH + 1):
        deep = {"not": deep}
    with pytest.raises(Refused, match="levels deep"):
        compile_filter(deep)
    with pytest.raises(Refused, match="too many"):
        compile_filter({"or": [{"tool": "x"}] * MAX_CONDITIONS})


trees = st.recursive(
    st.sampled_from([{"tool": "search"}, {"tool": "book"}, {"value": {"gte": 5}}, {"values": "hat136"}, {}]),
    lambda inner: st.one_of(
        st.builds(lambda tree: {"not": tree}, inner),
        st.builds(lambda several: {"and": several}, st.lists(inner, max_size=3)),
        st.builds(lambda several: {"or": several}, st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)


@given(trees, trees)
def test_the_laws_of_de_morgan(left: Any, right: Any) -> None:
    neither = compile_filter({"not": {"or": [left, right]}})
    none = compile_filter({"and": [{"not": left}, {"not": right}]})
    assert neither(entry()) is none(entry())
