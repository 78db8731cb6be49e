"""Partition keys and partitions: fixed for ever, since logs are laid out by them."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import keys
from events.errors import Refused

NOBODY = {"task": "", "session": "", "user": "", "agent": ""}


@pytest.mark.parametrize(
    ("org", "key", "partition"),
    [
        ("default", "task/t1", 7), ("default", "user/u1", 3), ("default", "agent/coder", 3), ("default", "org", 6),
        ("acme", "task/t1", 5), ("acme", "task/航班", 2), ("default", "partition/6", 6), ("default", "partition/14", 6),
    ],
)  # fmt: skip
def test_partition_vectors(org: str, key: str, partition: int) -> None:
    """As other languages compute them: ``printf 'default\\x1ftask/t1' | b2sum | cut -c1-16``, modulo 8."""
    assert keys.partition_of(org, key, 8) == partition


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(keys).attempted > 0 == doctest.testmod(keys).failed


@given(st.text(max_size=50), st.text(max_size=50), st.integers(1, 64))
def test_every_key_has_a_partition(org: str, name: str, partitions: int) -> None:
    if "\ud800" <= max(org + name, default="") <= "\udfff":
        return
    key = keys.task_key(name)
    assert keys.partition_of(org, key, partitions) == keys.partition_of(org, key, partitions) < partitions


def test_a_task_never_collides_with_a_scope() -> None:
    names = {
        keys.task_key("x"),
        keys.session_key("x"),
        *(keys.scope_key(lv, user="x", agent="x") for lv in ("user", "agent", "org")),
    }
    assert len(names) == 5


class Said:
    """A payload that says what a test wants it to say."""

    def __init__(self, **said: object) -> None:
        self.__dict__.update(said)


@pytest.mark.parametrize(
    ("rule", "payload", "who", "key"),
    [
        ("task", None, {"task": "t"}, "task/t"),
        ("settlement", None, {"task": "t", "session": "s"}, "session/s"),
        ("settlement", None, {"task": "t"}, "task/t"),
        ("feedback", None, {"task": "t", "user": "u"}, "task/t"),
        ("feedback", None, {"user": "u", "agent": "a"}, "user/u"),
        ("scope", Said(kind="preference"), {"user": "u", "agent": "a"}, "user/u"),
        ("scope", Said(kind="tool_reliability"), {"user": "u", "agent": "a"}, "agent/a"),
        ("scope", Said(kind="convention"), {"user": "u"}, "org"),
        ("scope", Said(kind="preference", scope="org"), {"user": "u"}, "org"),
        ("scope", None, {"agent": "a"}, "agent/a"),
        ("scope", None, {}, "org"),
        ("discarded", Said(partition_key="session/s"), {}, "session/s"),
        ("partition", Said(partition=5), {}, "partition/5"),
    ],
)
def test_the_rule_of_a_type_gives_the_key(rule: str, payload: object, who: dict[str, str], key: str) -> None:
    assert keys.partition_key(rule, payload, NOBODY | who) == key


@pytest.mark.parametrize(
    ("rule", "payload", "missing"),
    [("task", None, "run"), ("settlement", None, "run"), ("scope", Said(kind="fact"), "user"),
     ("scope", Said(kind="procedure"), "agent")],
)  # fmt: skip
def test_a_missing_name_is_asked_for(rule: str, payload: object, missing: str) -> None:
    with pytest.raises(Refused, match=f"give `{missing}`"):
        keys.partition_key(rule, payload, NOBODY)


@pytest.mark.parametrize("key", ["task", "task/", "planet/mars", "partition/x", "partition/-1", "task/a\x1fb", "ORG"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(Refused, match="no partition key"):
        keys.partition_key("discarded", Said(partition_key=key), NOBODY)
