"""Which triggers are worth asking in a context, without asking them all: an index of what each cannot hold without.

A trigger's *anchors* are values and words of which the context must have at least one, or the trigger does not hold. A
context looks up its own values and words; triggers without anchors (numbers, negations, always) are asked every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from events.errors import Refused
from events.triggers import Every, Not, Some, Term, Trigger, parse
from projections.bounds import canonical
from projections.policy.predicate import Holds, Seen, comparable, compiled, numeric
from projections.retrieval.words import words

Anchor = tuple[str, str, str]
"""Field, operator (``is`` or ``has``), value or word."""


REMEMBERED = 16_384
"""Triggers that are kept ready: scopes are read again and again, and their triggers stay the same."""


class Ready(NamedTuple):
    """A trigger that can be asked, and its anchors; None: it has none."""

    holds: Holds
    anchors: frozenset[Anchor] | None


NEVER = Ready(lambda seen: False, frozenset())
"""A trigger that nobody can read: it holds nowhere."""


def ready(trigger: Any) -> Ready:
    """A trigger as it stands in an event, made ready."""
    return _ready(canonical(trigger))


@lru_cache(maxsize=REMEMBERED)
def _ready(text: str) -> Ready:
    try:
        parsed = parse(orjson.loads(text))
    except Refused:
        return NEVER
    found = anchors(parsed)
    return Ready(compiled(parsed), None if found is None else frozenset(found))


class Index:
    """Places of triggers, found by what a context holds."""

    def __init__(self, triggers: Iterable[Ready]) -> None:
        self._fields: dict[str, dict[str, dict[str, list[int]]]] = {}
        self._always: list[int] = []
        for place, trigger in enumerate(triggers):
            for field, operator, value in trigger.anchors or ():
                self._fields.setdefault(field, {}).setdefault(operator, {}).setdefault(value, []).append(place)
            if trigger.anchors is None:
                self._always.append(place)

    def candidates(self, seen: Seen) -> list[int]:
        """Places of the triggers that may hold, in order: all that do are among them."""
        places = set(self._always)
        for field, operators in self._fields.items():
            for value in seen[field]:
                places.update(operators.get("is", {}).get(value.text, ()))
                if named := operators.get("has"):
                    for word in value.words:
                        places.update(named.get(word, ()))
        return sorted(places)


def anchors(trigger: Trigger) -> set[Anchor] | None:
    """What a context must have one of for the trigger to hold; None where nothing of the kind is known."""
    match trigger:
        case Term(field, "is" | "in", values):
            if any(numeric(value) is not None for value in values):
                return None  # a number may be written in many ways
            return {(field, "is", comparable(value)) for value in values}
        case Term(field, "has", (text,)):
            return {(field, "has", word) for word in sorted(set(words(str(text))), key=len)[-1:]}
        case Every(parts):
            found = [known for part in parts if (known := anchors(part)) is not None]
            return min(found, key=len) if found else None
        case Some(parts):
            each = [anchors(part) for part in parts]
            return None if None in each else {anchor for known in each for anchor in known or ()}
        case Term() | Not():
            return None
