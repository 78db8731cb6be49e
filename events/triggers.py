"""Triggers: in which contexts a belief applies, as a structured predicate that an event carries.

    {}                                        always
    {"field": "tool", "is": "refund"}         equal, whatever the case and width of letters; numbers by value
    {"field": "mode", "in": ["a", "b"]}       equal to one of them
    {"field": "goal", "has": "invoice"}       holds these words
    {"field": "step", "above": 3}             a number above (``below``) that one, which itself does not count
    {"all": [...]}  {"any": [...]}  {"not": {...}}

``parse`` reads the shape alone; what a context makes of it is ``projections.policy.predicate``. The door refuses what
cannot be read; a belief that came in before it did so applies nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

from events.errors import Refused

Operator = Literal["is", "in", "has", "below", "above"]
Scalar = str | int | float | bool

OPERATORS: tuple[Operator, ...] = get_args(Operator)
MAX_DEPTH = 8
"""How deep ``all``, ``any`` and ``not`` may stand in one another."""
MAX_TERMS = 64
"""Terms of one trigger, and values of one ``in``."""
MAX_CHARS = 256
"""Characters of a field's name, and of a text."""


@dataclass(frozen=True, slots=True)
class Term:
    """What one field of a context must be. ``values``: one, but for ``in``."""

    field: str
    operator: Operator
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """Each of them holds; with none, always."""

    parts: tuple[Trigger, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of them holds."""

    parts: tuple[Trigger, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """It does not hold."""

    part: Trigger


Trigger = Term | Every | Some | Not


def parse(trigger: Any, place: str = "trigger") -> Trigger:
    """Read a trigger. Raises Refused (code ``bad_trigger``) with the place and what may stand there."""
    parsed = Every() if trigger == {} else _parse(trigger, place, 1)
    if (terms := _terms(parsed)) > MAX_TERMS:
        raise _refused(place, f"has {terms} terms, the limit is {MAX_TERMS}: make several beliefs of it")
    return parsed


def _parse(value: Any, place: str, depth: int) -> Trigger:
    if depth > MAX_DEPTH:
        raise _refused(place, f"is nested deeper than {MAX_DEPTH}")
    if not isinstance(value, Mapping) or not value:
        raise _refused(place, f"must be an object with `field`, or one of `all`, `any`, `not`; not {_told(value)}")
    if "field" in value:
        return _term(value, place)
    if len(value) != 1 or not (value.keys() & {"all", "any", "not"}):
        raise _refused(place, f"must have `field`, or one of `all`, `any`, `not` alone; it has {_names(value)}")
    ((word, inner),) = value.items()
    if word == "not":
        return Not(_parse(inner, f"{place}.not", depth + 1))
    if not isinstance(inner, list) or not inner:
        raise _refused(f"{place}.{word}", f"must be a list of at least one condition, not {_told(inner)}")
    parts = tuple(
        _parse(item, f"{place}.{word}[{index}]", depth + 1) for index, item in enumerate(inner[: MAX_TERMS + 1])
    )
    return Every(parts) if word == "all" else Some(parts)


def _term(value: Mapping[str, Any], place: str) -> Term:
    field = value["field"]
    if not isinstance(field, str) or not field.strip() or len(field) > MAX_CHARS:
        raise _refused(f"{place}.field", f"must be a name of 1 to {MAX_CHARS} characters, not {_told(field)}")
    given = [name for name in value if name != "field"]
    if len(given) != 1 or given[0] not in OPERATORS:
        listed = ", ".join(f"`{name}`" for name in OPERATORS)
        raise _refused(place, f"needs exactly one of {listed} beside `field`; it has {_names(value)}")
    operator = next(name for name in OPERATORS if name == given[0])
    return Term(field, operator, _values(operator, value[operator], f"{place}.{operator}"))


def _values(operator: Operator, value: Any, place: str) -> tuple[Scalar, ...]:
    match operator:
        case "is":
            return (_scalar(value, place),)
        case "in":
            if not isinstance(value, list) or not 0 < len(value) <= MAX_TERMS:
                raise _refused(place, f"must be a list of 1 to {MAX_TERMS} values, not {_told(value)}")
            return tuple(_scalar(item, f"{place}[{index}]") for index, item in enumerate(value))
        case "has":
            if not isinstance(value, str) or not any(map(str.isalnum, value)) or len(value) > MAX_CHARS:
                raise _refused(place, f"must be words of at most {MAX_CHARS} characters, not {_told(value)}")
            return (value,)
        case "below" | "above":
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                raise _refused(place, f"must be a number, not {_told(value)}")
            return (value,)


def _scalar(value: Any, place: str) -> Scalar:
    if isinstance(value, str) and value.strip() and len(value) <= MAX_CHARS:
        return value
    if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise _refused(place, f"must be a text of 1 to {MAX_CHARS} characters, a number, true or false; not {_told(value)}")


def _terms(trigger: Trigger) -> int:
    match trigger:
        case Term():
            return 1
        case Not(part):
            return _terms(part)
        case Every(parts) | Some(parts):
            return sum(map(_terms, parts))


def _told(value: Any) -> str:
    """What was found, short: a value of the caller's may be long."""
    if value is None:
        return "null"
    if isinstance(value, Mapping | list):
        return f"{'an empty ' if not value else ''}{'object' if isinstance(value, Mapping) else 'list'}"
    return f"{value!r:.60}"


def _names(value: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name:.40}`" for name in list(value)[:6])


def _refused(place: str, said: str) -> Refused:
    return Refused(f"`{place}` {said}", code="bad_trigger", field=f"data.{place}")
