"""How cards read in a context: a heading, then every value close behind the name of its field.

Two forms. *Rows* keep records together, a line each::

    #1-42 search_direct_flight
    flight_number: HAT069; origin: SFO; prices.economy: 152
    flight_number: HAT083; origin: SFO; prices.economy: 134

*Compressed* lists the chosen values of each field, so that a value is told once; what a card is about stands in its
heading where it is told elsewhere::

    #1-42 search_direct_flight
    flight_number: HAT069, HAT083
    prices.economy: 152, 134
    #1-47 get_reservation_details JG7FMM
    cabin: business

A line that grows long begins anew with its name, so that a value is never far from it. Sentences of prose stand as they
are. What follows ``#`` is the log position of the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from projections.cards.reading.facts import Fact
from projections.cards.reading.phrases import AS_TOLD
from projections.context.sources import Source

_KEYED = ".*.id"
"""How a field ends that names a thing among many."""

REACH = 60
"""Characters of values after which a line names its field again."""


def heading(source: Source, about: str = "") -> str:
    """The line that a card begins with; ``about``: what it is about, where no line after it says so."""
    replaced = f" (replaced by #{source.replaced_by})" if source.replaced_by else ""
    return f"#{source.place} {one_line(f'{source.title} {about}'.strip())}{replaced}"


def rows(source: Source) -> str:
    """All facts of a card, a line a record."""
    labels = labels_of(tuple({fact.field: None for fact in source.facts}))
    lines: list[str] = []
    current: list[str] = []
    before: tuple[str, str] = ("", "")
    for fact in source.facts:
        here = (row_of(fact), fact.field)
        if current and (here[0] != before[0] or not fact.field):
            lines.append("; ".join(current))
            current = []
        if current and here == before and len(current[-1]) + len(fact.text) < REACH:
            current[-1] += f", {one_line(fact.text)}"
        else:
            current.append(named(labels[fact.field], fact.text))
        before = here
    if current:
        lines.append("; ".join(current))
    return "\n".join((heading(source), *lines))


def compressed(source: Source, chosen: Iterable[int]) -> str:
    """The chosen facts of a card, by field."""
    labels = labels_of(tuple({fact.field: None for fact in source.facts}))
    by_field: dict[str, list[str]] = {}
    about = source.about
    for index in sorted(chosen):
        fact = source.facts[index]
        by_field.setdefault(fact.field, []).append(one_line(fact.text))
        about = "" if fact.text == about else about
    lines = [line for field, texts in by_field.items() for line in _listed(labels[field], texts)]
    return "\n".join((heading(source, about), *lines))


def by_field(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Values behind the names of their fields, each name once."""
    fields: dict[str, list[str]] = {}
    for label, text in pairs:
        fields.setdefault(label, []).append(one_line(text))
    return [line for label, texts in fields.items() for line in _listed(label, texts)]


def named(label: str, text: str) -> str:
    """A value behind its name; prose, which has none, by itself."""
    if label.endswith(AS_TOLD):
        return label[:-1] + one_line(text)
    return f"{label}: {one_line(text)}" if label else one_line(text)


def one_line(text: str) -> str:
    """A text without line breaks: whatever stands in data must not begin a line of its own."""
    return text if "\n" not in text and "\r" not in text and len(text.splitlines()) < 2 else " ".join(text.split())


@lru_cache(maxsize=4_096)
def labels_of(fields: Sequence[str]) -> dict[str, str]:
    """A name for each field of a card: its last name, with as many before it as tell it from the other fields.

    What names a thing among many (``payments.*.id``) says among which.
    """
    paths = {field: tuple(name for name in field.split(".") if name and name != "*") for field in fields}
    taken: dict[tuple[str, ...], int] = {}
    for path in paths.values():
        for size in range(1, len(path) + 1):
            taken[path[-size:]] = taken.get(path[-size:], 0) + 1
    return {
        field: one_line(".".join(_shortest(path, taken, 2 if field.endswith(_KEYED) else 1)))
        for field, path in paths.items()
    }


def _shortest(path: tuple[str, ...], taken: dict[tuple[str, ...], int], least: int) -> tuple[str, ...]:
    return next((path[-size:] for size in range(least, len(path)) if taken[path[-size:]] == 1), path)


def row_of(fact: Fact) -> str:
    """The record that a fact is shown with: an object that is no item of a list goes with the one around it."""
    names = fact.field.split(".")
    parts = fact.record.split(".") if fact.record else []
    while parts and parts[-1] in names:
        parts.pop()
    return ".".join(parts)


def _listed(label: str, texts: list[str]) -> Iterator[str]:
    if not label:
        yield from texts
        return
    line = ""
    for text in texts:
        if line and len(line) - len(label) + len(text) <= REACH:
            line += f", {text}"
        else:
            if line:
                yield line
            line = named(label, text)
    yield line
