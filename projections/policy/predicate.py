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
from operator import gt, lt
from typing import Any

from events.errors import Refused
from events.triggers import Every, Not, Some, Term, Trigger, parse
from projections.retrieval.words import plain, words

Context = Mapping[str, Any]
"""Name of a field -> text, number, bool, or a list of those."""


class Seen(dict[str, "list[_Value]"]):
    """A context as triggers look at it, by field: each is made comparable once, at the first look. A field that the
    context lacks has no values.
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def __missing__(self, name: str) -> list[_Value]:
        value = self._context.get(name)
        items = value if isinstance(value, list | tuple) else (value,)
        found = self[name] = [_Value(item) for item in items if isinstance(item, str | int | float) and item != ""]
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
        case Term():
            return _of_term(trigger)


def _each(parts: list[Holds]) -> Holds:
    def each(seen: Seen) -> bool:
        for part in parts:  # noqa: SIM110  all() of a generator takes twice as long, ten thousand times
            if not part(seen):
                return False
        return True

    return each


def _of_term(term: Term) -> Holds:
    """A loop for each kind of term: what is asked ten thousand times for one answer calls nothing that it need not."""
    field, first = term.field, term.values[0]
    texts = {comparable(value) for value in term.values}
    numbers = {number for value in term.values if (number := numeric(value)) is not None}
    wanted = frozenset(words(str(first)))
    compare: Callable[[Any, Any], bool] = lt if term.operator == "below" else gt

    def equals(seen: Seen) -> bool:
        for value in seen[field]:  # noqa: SIM110  see ``_each``
            if value.text in texts or value.number in numbers:
                return True
        return False

    def has(seen: Seen) -> bool:
        for value in seen[field]:  # noqa: SIM110  see ``_each``
            if wanted and wanted <= value.words:
                return True
        return False

    def lies(seen: Seen) -> bool:
        for value in seen[field]:  # noqa: SIM110  see ``_each``
            if value.number is not None and compare(value.number, first):
                return True
        return False

    match term.operator:
        case "is" | "in":
            return equals
        case "has":
            return has
        case "below" | "above":
            return lies


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
