"""Whether a trigger holds in a context.

A context is a flat object: ``agent, user, goal, query, mode, model, tool, tools, step, path, tags``, and whatever else
its maker says. A field that is a list (``tools``, ``tags``) satisfies a term as soon as one of its items does. A field
that the context lacks, or that is empty there, satisfies none; ``not`` only turns round what is inside it, so it holds
where the field is lacking.

Texts are compared without case, width, composition and accents (C31). ``has`` asks for all of its words: in scripts
that put no spaces between words, for all of its characters and pairs of neighbours, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from events.errors import Refused
from events.triggers import Every, Not, Some, Term, Trigger, parse
from projections.retrieval.words import plain, words

Context = Mapping[str, Any]
"""Name of a field -> text, number, bool, or a list of those."""


class Seen:
    """A context as triggers look at it: each field is made comparable once, at the first look."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fields: dict[str, list[_Value]] = {}

    def field(self, name: str) -> list[_Value]:
        """The values of a field; none where the context lacks it."""
        found = self._fields.get(name)
        if found is None:
            value = self._context.get(name)
            items = value if isinstance(value, list | tuple) else (value,)
            found = [_Value(item) for item in items if isinstance(item, str | int | float) and item != ""]
            self._fields[name] = found
        return found


class _Value:
    """One value of a field."""

    def __init__(self, value: Any) -> None:
        self.text = comparable(value)
        self.number = numeric(value)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(words(self.text))


Holds = Callable[[Seen], bool]


def holds(trigger: Any, context: Context) -> bool:
    """Whether a trigger, as it stands in an event, holds in a context. One that nobody can read holds nowhere."""
    try:
        return compiled(parse(trigger))(Seen(context))
    except Refused:
        return False


def compiled(trigger: Trigger) -> Holds:
    """A trigger ready to be asked often."""
    match trigger:
        case Every(()):
            return lambda seen: True
        case Every(parts):
            return _each([compiled(part) for part in parts])
        case Some(parts):
            some = [compiled(part) for part in parts]
            return lambda seen: any(part(seen) for part in some)
        case Not(part):
            inner = compiled(part)
            return lambda seen: not inner(seen)
        case Term(field, operator, values):
            return _of_field(field, _test(operator, values))


def _each(parts: list[Holds]) -> Holds:
    def each(seen: Seen) -> bool:
        for part in parts:  # noqa: SIM110  all() of a generator takes twice as long, ten thousand times
            if not part(seen):
                return False
        return True

    return each


def _of_field(field: str, test: Callable[[_Value], bool]) -> Holds:
    def some(seen: Seen) -> bool:
        for value in seen.field(field):  # noqa: SIM110  any() of a generator takes twice as long, ten thousand times
            if test(value):
                return True
        return False

    return some


def _test(operator: str, values: tuple[Any, ...]) -> Callable[[_Value], bool]:
    first = values[0]
    if operator == "has":
        wanted = frozenset(words(first))
        return lambda value: bool(wanted) and wanted <= value.words
    if operator == "below":
        return lambda value: value.number is not None and value.number < first
    if operator == "above":
        return lambda value: value.number is not None and value.number > first
    texts = {comparable(value) for value in values}
    numbers = {number for value in values if (number := numeric(value)) is not None}
    return lambda value: value.text in texts or value.number in numbers


def comparable(value: Any) -> str:
    """A value as texts are compared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(plain(str(value)).split())


def numeric(value: Any) -> float | None:
    """The number that a value is, also one written as text, as contexts that come in an address have them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) and len(value) <= 40 and value.strip()[-1:].isdigit() else None
    except ValueError:
        return None
