"""What a context chooses from: cards with their facts, and what is known of which facts will be needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from projections.cards.reading.facts import Fact

PERSON = "user"
"""Title of what a person said."""

SAID = 3
"""Messages that are the latest."""


class Source(NamedTuple):
    """A card as a context sees it. ``place`` is the log position of its original, the way back to it.

    ``about``: the value of its facts that says which thing it tells of, where one does.
    """

    card: str
    place: str
    title: str
    facts: tuple[Fact, ...]
    trust: str = "data"
    worth: int = 0
    replaced_by: str = ""
    relevance: float = 0.0
    about: str = ""


class Needs(NamedTuple):
    """What speaks for a fact, apart from itself; all of it known before the context is made.

    ``used``: values (in normal form) that this task's calls and decisions used before. ``expected``: (tool, field) ->
    how likely the next call takes a value of it, learned of so many ``calls``. ``wanted``: parameters that declared
    tools and earlier calls take (in the form of ``projections.cards.needs.readings``): a field of the same
    words is likely to be asked for. ``mode``: what kind of work it is for, see ``shapes.MODES``. ``said``: the latest
    messages, without case; ``asked``: what is asked of the context itself, without case.
    """

    used: frozenset[str] = frozenset()
    expected: Mapping[tuple[str, str], float] = {}
    calls: int = 0
    wanted: frozenset[str] = frozenset()
    mode: str = ""
    said: str = ""
    asked: str = ""


def said_in(messages: Sequence[str]) -> str:
    """What the latest of some messages say, as ``Needs.said`` has it."""
    return "\n".join(messages[-SAID:]).casefold()
