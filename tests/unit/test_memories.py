"""Memories as a fold: one memory for one saying, stale decisions, reversible states, deletion for good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.memories import MEMORIES_PROJECTION
from projections.memory.importance import importance_at, status_at
from projections.memory.normal import normal_form, saying
from tests.unit.fold_runner import Folded, event, fold

KIND = {"kind": "preference", "user": "u1"}


def proposed(n: int, content: str, **more: Any) -> dict[str, Any]:
    return event("memory.proposed", n, **{**KIND, "content": content, **more})


def admitted(n: int, memory: str, content: str, **more: Any) -> dict[str, Any]:
    return event("memory.admitted", n, **{**KIND, "memory": memory, "content": content, **more})


def change(what: str, n: int, memory: str, **more: Any) -> dict[str, Any]:
    return event(f"memory.{what}", n, **{**KIND, "memory": memory, **more})


def folded(*raws: dict[str, Any]) -> Folded:
    return fold(MEMORIES_PROJECTION, raws)


def statuses(found: Folded) -> dict[str, str]:
    return {row["memory"]: row["status"] for row in found.table("memories")}


def fates(found: Folded) -> dict[str, tuple[str, str]]:
    return {row["proposal"]: (row["status"], row["reason"]) for row in found.table("memory_proposals")}


def test_two_curators_admit_the_same_fact_at_the_same_moment() -> None:
    """C16, C46: one memory; the second proposal says which; whichever way it is written."""
    found = folded(
        proposed(0, "The user prefers metric units"),
        proposed(1, "the user prefers metric units."),
        admitted(2, "a", "The user prefers metric units", proposal="e0", based_on="1-1"),
        admitted(3, "b", "the user prefers metric units.", proposal="e1", based_on="1-1"),
    )
    assert statuses(found) == {"a": "active"}
    assert fates(found) == {"e0": ("admitted", ""), "e1": ("rejected", "duplicate")}
    assert found.one("memories")["said"] == 2


def test_saying_it_twice_lets_the_first_stay() -> None:
    """C47: identical feedback twice."""
    once = folded(admitted(1, "a", "be brief"))
    twice = folded(admitted(1, "a", "be brief"), admitted(2, "b", "Be brief!"))
    first, again = once.one("memories"), twice.one("memories")
    kept = {name for name in first if first[name] == again[name]}
    assert set(first) - kept == {"said", "last_verified"}


def test_a_decision_that_did_not_know_the_last_change_is_stale_and_made_again() -> None:
    found = folded(
        proposed(0, "likes tea"),
        admitted(1, "other", "likes coffee"),
        admitted(2, "a", "likes tea", proposal="e0", based_on="1-0"),
    )
    assert (statuses(found), fates(found)) == ({"other": "active"}, {"e0": ("pending", "")})
    assert found.one("memory_proposals")["stale"] == 1
    again = folded(
        proposed(0, "likes tea"),
        admitted(1, "other", "likes coffee"),
        admitted(2, "a", "likes tea", proposal="e0", based_on="1-0"),
        admitted(3, "a", "likes tea", proposal="e0", based_on="1-2"),
    )
    assert fates(again) == {"e0": ("admitted", "")}
    assert statuses(again) == {"other": "active", "a": "active"}


def test_decisions_of_one_view_do_not_outdate_each_other_but_an_edit_between_them_does() -> None:
    batch = [
        proposed(0, "one"),
        proposed(1, "two"),
        admitted(2, "a", "one", proposal="e0", based_on="1-1"),
        admitted(3, "b", "two", proposal="e1", based_on="1-1"),
    ]
    assert statuses(folded(*batch)) == {"a": "active", "b": "active"}
    between = [*batch[:3], change("edited", 9, "a", content="ones"), batch[3]]
    assert statuses(folded(*between)) == {"a": "active"}


def test_a_proposal_is_decided_once() -> None:
    found = folded(
        proposed(0, "likes tea"),
        event("memory.rejected", 1, proposal="e0", reason="noise", **KIND),
        admitted(2, "a", "likes tea", proposal="e0"),
    )
    assert (statuses(found), fates(found)) == ({}, {"e0": ("rejected", "noise")})


def test_superseded_and_invalidated_memories_come_back_and_deleted_ones_never() -> None:
    start = [admitted(1, "a", "aisle"), admitted(2, "b", "window"), change("superseded", 3, "a", superseded_by="b")]
    assert statuses(folded(*start)) == {"a": "superseded", "b": "active"}
    back = [*start, change("restored", 4, "a"), change("invalidated", 5, "b", reason="wrong")]
    assert statuses(folded(*back)) == {"a": "active", "b": "invalidated"}
    gone = [*back, change("deleted", 6, "b"), change("restored", 7, "b"), change("edited", 8, "b", content="window")]
    assert statuses(folded(*gone, admitted(9, "b", "window"))) == {"a": "active", "b": "deleted"}


def test_nothing_of_a_deleted_memory_is_left_in_any_row() -> None:
    found = folded(
        admitted(1, "a", "lives in Oslo", tags=["Oslo"], entity="Oslo"),
        change("edited", 2, "a", content="lives in Oslo, Norway"),
        change("deleted", 3, "a", by="ada"),
    )
    assert b"Oslo" not in found.dump()
    assert [row["change"] for row in found.table("memory_changes")] == ["admitted", "edited", "deleted"]
    # what it said is known as a digest, so that no reactor brings it back
    assert [row["deleted"] for row in found.table("memory_sayings")] == ["a", "a"]


def test_a_secret_that_came_another_way_is_masked() -> None:
    """C21: events of memories can be published by anybody; the door of the curator is not the only one in the house."""
    secret = "api_key: sk-xx-AAAA1111BBBB2222.cccc3333dddd_EEEE"
    found = folded(admitted(1, "a", f"note {secret}"), change("edited", 2, "a", content=f"now {secret}"))
    assert b"AAAA1111" not in found.dump() and b"cccc3333" not in found.dump()


def test_an_edit_that_saw_another_version_changes_nothing_and_is_counted() -> None:
    found = folded(
        admitted(1, "a", "one"),
        change("edited", 2, "a", content="two", expected_version=1),
        change("edited", 3, "a", content="three", expected_version=1),
    )
    row = found.one("memories")
    assert (row["content"], row["version"], row["conflicts"]) == ("two", 2, 1)


@pytest.mark.parametrize("how", ["edited", "restored"])
def test_no_way_leads_to_two_active_memories_that_say_the_same(how: str) -> None:
    """C46."""
    if how == "edited":
        raws = [admitted(1, "a", "one"), admitted(2, "b", "two"), change("edited", 3, "b", content="ONE.")]
    else:
        raws = [admitted(1, "b", "one"), change("invalidated", 2, "b"), admitted(3, "a", "one"),
                change("restored", 4, "b")]  # fmt: skip
    found = folded(*raws)
    assert statuses(found) == {"a": "active", "b": "superseded"}
    assert found.one("memories", memory="b")["superseded_by"] == "a"


def consolidated(n: int, **more: Any) -> dict[str, Any]:
    data = {"memory": "c", "sources": ["a", "b"], "content": "has a green car", **KIND, **more}
    return event("memory.consolidated", n, **data)


def test_consolidation_takes_the_place_of_what_it_was_made_of() -> None:
    start = [admitted(1, "a", "has a car", tags=["car"]), admitted(2, "b", "has a green car", tags=["green"])]
    found = folded(*start, consolidated(3, based_on="1-1"))
    assert statuses(found) == {"a": "superseded", "b": "superseded", "c": "active"}
    assert found.one("memories", memory="c")["tags"] == ["car", "green"]


@pytest.mark.parametrize("between", ["edited", "deleted", "invalidated"])
def test_consolidation_never_overwrites_a_later_change_nor_brings_back_what_was_deleted(between: str) -> None:
    more = {"content": "has a red car"} if between == "edited" else {}
    start = [admitted(1, "a", "has a car"), admitted(2, "b", "has a green car"), change(between, 3, "a", **more)]
    before = folded(*start)
    for based_on in ("1-1", "" if between != "edited" else "1-1"):
        after = folded(*start, consolidated(4, based_on=based_on))
        assert after.table("memories") == before.table("memories")


def test_recalls_are_counted_and_change_no_version() -> None:
    recall = event("memory.recalled", 2, memories=["a", "a", "unknown"], scope="user", user="u1")
    row = folded(admitted(1, "a", "one"), recall).one("memories")
    assert (row["hits"], row["version"], row["last_access"]) == (1, 1, "2026-03-01T10:00:02+00:00")


def test_a_user_is_a_wall() -> None:
    """The same names and the same words under another user are another memory."""
    found = folded(admitted(1, "a", "one"), admitted(2, "a", "one", user="u2"), change("deleted", 3, "a"))
    assert [(row["status"], row["content"]) for row in found.table("memories")] == [("deleted", ""), ("active", "one")]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["admitted", "edited", "invalidated", "restored", "deleted", "superseded", "consolidated"]),
        st.sampled_from("abc"), st.sampled_from(["One", "one!", "two", "三"]), st.integers(0, 12),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(OPERATIONS, st.booleans())
def test_whatever_happens_a_saying_has_one_active_memory_at_most(operations: Any, blind: bool) -> None:
    """C16, C46: for any order of decisions, edits and restorations, and however they are batched."""
    raws = []
    for n, (what, name, content, seen) in enumerate(operations):
        more = {"admitted": {"content": content}, "edited": {"content": content}, "superseded": {"superseded_by": "z"},
                "consolidated": {"sources": ["a", "b"], "content": content}}.get(what, {})  # fmt: skip
        based = {"based_on": f"1-{seen}"} if what in ("admitted", "superseded", "consolidated") and not blind else {}
        name = name + str(n) if what in ("admitted", "consolidated") and n % 3 else name
        raws.append(event(f"memory.{what}", n, **KIND, memory=name, **more, **based))
    found = folded(*raws)
    active = [row for row in found.table("memories") if row["status"] == "active"]
    said = [saying(row["kind"], row["content"]) for row in active]
    assert len(said) == len(set(said))
    held = {row["saying"]: row["memory"] for row in found.table("memory_sayings") if row["memory"]}
    assert held == {saying(row["kind"], row["content"]): row["memory"] for row in active}
    assert fold(MEMORIES_PROJECTION, raws, batch=1).dump() == found.dump()


def test_the_order_of_two_admissions_decides_who_stays_and_never_how_many() -> None:
    pair = [admitted(1, "a", "one"), admitted(2, "b", "One")]
    assert [len(folded(*order).table("memories")) for order in permutations(pair)] == [1, 1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Likes café", "likes CAFE\u0301", True),
        ("ＡＢＣ　１２", "abc 12", True),
        ("我喜欢 靠窗。", "我喜欢靠窗", True),
        ("zero\u200bwidth", "zerowidth", True),
        ("-5 degrees", "5 degrees", False),
        ("3.50 EUR", "350 EUR", False),
        ("C++", "C", False),
        ("likes tea", "likes teas", False),
    ],
)
def test_normal_forms(one: str, other: str, same: bool) -> None:
    """C31."""
    assert (normal_form(one) == normal_form(other)) is same


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(**more: Any) -> dict[str, Any]:
    return {"status": "active", "ttl_s": None, "last_verified": "2026-03-01T10:00:00+00:00", "last_access": "",
            "hits": 0, "score": 0.8, **more}  # fmt: skip


def test_expiry_and_fading_are_computed_at_the_moment_of_reading() -> None:
    assert status_at(row(ttl_s=3600.0), NOW) == "expired"
    assert status_at(row(ttl_s=3600.0, status="invalidated"), NOW) == "invalidated"
    assert status_at(row(ttl_s=3 * 3600.0), NOW) == "active"
    assert status_at(row(ttl_s=1e300), NOW) == "active"
    month = NOW + timedelta(days=30)
    assert importance_at(row(), NOW + timedelta(days=-1)) == 0.8
    assert importance_at(row(), month) == pytest.approx(0.4, abs=0.01)
    assert importance_at(row(hits=3), month) == pytest.approx(0.8 * 0.5 ** (1 / 3), abs=0.01)
    assert importance_at(row(last_access="2026-03-31T00:00:00+00:00"), month) > 0.78
