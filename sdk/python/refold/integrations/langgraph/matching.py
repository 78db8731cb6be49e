"""Filters of items and patterns of namespaces, as LangGraph's stores understand them. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import MatchCondition

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS = ("$eq", "$ne", *_ORDER)


def fits(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether an item's value has what a filter asks for.

    A member that is absent is None. Order compares numbers with numbers and text with text; nothing else has one.
    Raises ValueError for an unknown operator.
    """
    return all(_matches(value.get(name), wanted) for name, wanted in (filter or {}).items())


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(name.startswith("$") for name in wanted):
            return all(_holds(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(name), one) for name, one in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return bool(value == wanted)


def _holds(value: Any, name: str, operand: Any) -> bool:
    if name == "$eq":
        return bool(value == operand)
    if name == "$ne":
        return bool(value != operand)
    if name not in _ORDER:
        raise ValueError(f"there is no operator {name!r}; there are {', '.join(_OPERATORS)}")
    comparable = all(map(_is_number, (value, operand))) or (isinstance(value, str) and isinstance(operand, str))
    return comparable and _ORDER[name](value, operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def matches_all(namespace: Sequence[str], conditions: Iterable[MatchCondition] | None) -> bool:
    """Whether a namespace begins and ends as the conditions say; ``*`` is any one name."""
    return all(_begins(namespace, condition) for condition in conditions or ())


def _begins(namespace: Sequence[str], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", name) for name, wanted in zip(part, path, strict=False))


def fixed_prefix(conditions: Iterable[MatchCondition] | None) -> list[str]:
    """The names that every matching namespace begins with, as far as the conditions tell."""
    found: list[str] = []
    for condition in conditions or ():
        if condition.match_type == "prefix":
            names = list(condition.path)
            names = names[: names.index("*")] if "*" in names else names
            found = max(found, names, key=len)
    return found
