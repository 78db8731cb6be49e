"""What the next call is expected to take: by what followed the last one, and what such calls took."""

from __future__ import annotations

import pytest

from projections.context.expecting import expect

FOLLOWED = {"book": {"search": 8}, "cancel": {"look": 4}, "search": {"": 8}, "look": {"": 4}}
TAKES = {"book": {("search", "flight"): 8, ("user", "id"): 4}, "cancel": {("look", "order"): 4, ("look", "reason"): 9}}


def test_what_followed_the_last_call_is_expected_next() -> None:
    after_search, after_look = (expect(FOLLOWED, TAKES, last).chances for last in ("search", "look"))
    assert after_search["search", "flight"] > 0.9 > 0.1 > after_search["look", "order"] > 0
    assert after_look["look", "order"] > 0.8 > 0.2 > after_look["search", "flight"] > 0


def test_a_chance_is_that_of_the_call_times_how_many_of_them_took_a_value() -> None:
    chances, calls = expect(FOLLOWED, TAKES, "search")
    assert calls == 24 and chances["user", "id"] == pytest.approx(chances["search", "flight"] / 2, abs=1e-4)
    assert chances["look", "reason"] == chances["look", "order"]  # a call that takes several values is one call
    assert all(0 <= chance <= 1 for chance in chances.values())


def test_after_a_call_that_nothing_ever_followed_what_is_called_at_all_is_expected() -> None:
    chances = expect(FOLLOWED, TAKES, "unheard").chances
    assert chances["search", "flight"] == pytest.approx(8 / 24, abs=1e-4)
    assert expect({}, {}, "search") == ({}, 0)


def test_rows_of_former_code_that_count_no_calls_say_nothing() -> None:
    """A read model of former code is read until its successor is made."""
    silent = {"book": {("search", "flight"): 3}}
    assert expect({"book": {}}, silent, "search") == ({}, 0)
    assert expect({"book": {}, "search": {"": 2}}, silent, "search") == ({}, 2)
