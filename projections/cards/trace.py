"""What an event says to the cards: traced values, what it is about, a digest of its content."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from events.event import Recorded
from events.types.thought import DecisionMade, MessageAdded
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import canonical, digest
from projections.cards.facts import Fact, facts_of
from projections.cards.summary import message_text
from projections.cards.values import normal, of_json, of_text, parsed

MAX_FIELDS = 64
_IDENTIFYING = re.compile(r"(?:^|_)(?:id|uuid|key|number|sku|isbn|email|path|name)$|[a-z]Id$")
_MEMORY = 4_096


class Traced(NamedTuple):
    """``values`` in order; ``entity`` is [field, value] or empty; ``text`` the digest of the content."""

    values: tuple[str, ...] = ()
    entity: tuple[str, str] | tuple[()] = ()
    fields: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    text: str = ""

    @property
    def subject(self) -> str:
        """Key of what a result is about, or ``""``."""
        return f"entity:{digest(chr(31).join(self.entity))}" if self.entity else ""


_remembered: dict[str, Traced] = {}


def trace(recorded: Recorded) -> Traced:
    """What an event says. A pure function of the event; the engine asks twice (names, apply), so answers are kept."""
    key = recorded.event.digest
    known = _remembered.get(key)
    if known is None:
        known = _trace(recorded.payload)
        if len(_remembered) >= _MEMORY:
            _remembered.clear()
        _remembered[key] = known
    return known


def _trace(payload: Any) -> Traced:
    match payload:
        case ToolCalled(arguments=arguments):
            return Traced(tuple(of_json(arguments)))
        case ToolReturned(result=result):
            return _of_result(parsed(result))
        case ToolFailed(error=error):
            return Traced(tuple(of_text(error)), facts=tuple(facts_of(error)), text=digest(error))
        case MessageAdded(role="user", content=content):
            text = message_text(content)
            return Traced(tuple(of_text(text)), facts=tuple(facts_of(text)), text=digest(" ".join(text.split())))
        case DecisionMade() as made:
            text = "\n".join((made.chosen, made.question, made.rationale))
            values = dict.fromkeys((*of_json(made.chosen), *of_text(text), *of_json(made.based_on)))
            return Traced(tuple(values), facts=tuple(facts_of(text)), text=digest(text))
        case _:
            return Traced()


def _of_result(value: Any) -> Traced:
    fields = tuple(value)[:MAX_FIELDS] if isinstance(value, dict) else ()
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return Traced(tuple(of_json(value)), _entity(value), fields, tuple(facts_of(value)), digest(text))


def _entity(value: Any) -> tuple[str, str] | tuple[()]:
    """The first field that identifies something, with its value."""
    if not isinstance(value, dict):
        return ()
    for field, item in value.items():
        if isinstance(item, (str, int)) and not isinstance(item, bool) and _IDENTIFYING.search(field):
            told = normal(str(item))
            if told:
                return (field, told)
    return ()


def call_subject(payload: ToolCalled) -> str:
    """Key of what a call looks at: its tool and arguments. A call with a side effect does, it does not look."""
    if payload.side_effect:
        return ""
    return f"call:{digest(canonical([payload.name, parsed(payload.arguments)]))}"


def text_subject(source: str, traced: Traced) -> str:
    """Key of what a card says, so that the same words twice are one card."""
    return f"text:{digest(source + traced.text)}"


def card_id(recorded: Recorded) -> str:
    """Id of the card that an event makes; unique over orgs and tasks."""
    event = recorded.event
    return "c" + digest(f"{event.org}\x1f{event.key}\x1f{event.id}")[:23]
