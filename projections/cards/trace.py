"""What an event says to the cards: its facts, the values in them, what it is about, a digest of its content.

Secrets are masked before anything else is read (see ``secrets``), so nothing that is made of a trace holds one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from events.event import Recorded
from events.types.thought import DecisionMade, MessageAdded
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import digest
from projections.cards.reading.facts import Fact, facts_in, facts_of, opened
from projections.cards.reading.forms import UBIQUITOUS, normal
from projections.cards.reading.phrases import behind
from projections.cards.reading.values import of_facts
from projections.cards.secrecy import secrets
from projections.cards.summary import message_text

MAX_FIELDS = 64
"""Fields of one result that are counted and matched, at most."""

WORDS = 4
"""A text of at least so many words says something, though it holds no value."""

_IDENTIFYING = re.compile(r"(?:^|_)(?:id|uuid|key|number|sku|isbn|email|path|name)$|[a-z]Id$")
_MEMORY = 4_096


class Traced(NamedTuple):
    """What an event says.

    ``content``: the payload's own, secrets masked, a text that holds JSON opened. ``found``: value -> the field that
    it stands in first (of a call: the parameter). ``entity``: [field, value] or empty. ``top``: the fields of the
    outermost object; ``fields``: all of them. ``text``: the digest of the content. ``behind``: of a result, values of
    prose -> what the words before them are counted as.
    """

    content: Any = None
    facts: tuple[Fact, ...] = ()
    found: dict[str, str] = {}  # noqa: RUF012 - read only
    entity: tuple[str, str] | tuple[()] = ()
    top: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    text: str = ""
    behind: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - read only

    @property
    def values(self) -> tuple[str, ...]:
        """The values in order of appearance."""
        return tuple(self.found)

    @property
    def told(self) -> Literal["number", "concept", ""]:
        """``number`` or ``concept`` where something is told though no value is traced; ``""`` where nothing is."""
        said = [fact for fact in self.facts if fact.field and fact.text.casefold() not in UBIQUITOUS]
        if any(fact.text.isdigit() for fact in said):
            return "number"
        if said or any(_wordy(fact.text) for fact in self.facts):
            return "concept"
        return ""


def _wordy(text: str) -> bool:
    return text.count(" ") >= WORDS - 1 or (not text.isascii() and len(text) > WORDS)


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


def forget(recorded: Recorded) -> None:
    """The event has been applied, so nobody asks again: what would be kept for nothing is room for other rows."""
    _remembered.pop(recorded.event.digest, None)


def _trace(payload: Any) -> Traced:
    match payload:
        case ToolCalled(arguments=arguments):
            content, facts, _ = _read(arguments)
            return Traced(content, facts, of_facts(facts))
        case ToolReturned(result=content):
            traced = _of_content(content)
            found = behind(traced.facts)
            return traced._replace(behind=found) if found else traced
        case ToolFailed(error=error):
            return _of_content(error)
        case MessageAdded(role="user", content=content):
            return _of_content(message_text(content))
        case DecisionMade() as made:
            return _of_decision(made)
        case _:
            return Traced()


def _read(value: Any) -> tuple[Any, tuple[Fact, ...], tuple[str, ...]]:
    """The value, its facts and their fields, secrets masked; JSON in a text is opened, so that fields tell of them."""
    value = opened(value)
    facts = facts_in(value)
    fields, _, texts = zip(*facts, strict=True) if facts else ((), (), ())
    fields = tuple(dict.fromkeys(fields))
    if secrets.among(fields, texts):
        value = secrets.masked(value)
        facts = facts_in(value)
        fields = tuple(dict.fromkeys([fact.field for fact in facts]))
    return value, tuple(facts), tuple(filter(None, fields))[:MAX_FIELDS]


def _of_content(value: Any) -> Traced:
    content, facts, fields = _read(value)
    prose = isinstance(content, str)
    text = " ".join(content.split()) if prose else msgspec.json.encode(content).decode()
    top = tuple(content)[:MAX_FIELDS] if isinstance(content, dict) else ()
    return Traced(content, facts, of_facts(facts, prose=prose), _entity(content, facts), top, fields, digest(text))


def _of_decision(told: DecisionMade) -> Traced:
    made = DecisionMade(
        chosen=secrets.masked_text(told.chosen),
        question=secrets.masked_text(told.question),
        rationale=secrets.masked_text(told.rationale),
        alternatives=secrets.masked(told.alternatives),
        based_on=[secrets.masked_text(text) for text in told.based_on],
    )
    facts = _read(told.chosen)[1]
    found = of_facts(facts)
    for more in (made.question, made.rationale, *made.based_on):
        found |= {value: field for value, field in of_facts(facts_of(more), prose=True).items() if value not in found}
    found |= {value: "" for text in made.based_on if (value := normal(text)) and value not in found}
    entity = ("question", clip_question(made.question)) if made.question else ()
    return Traced(made, facts, found, entity, text=digest("\n".join((made.chosen, made.question, made.rationale))))


def clip_question(question: str) -> str:
    """A question as what a decision is about: without case and spare space."""
    return " ".join(question.casefold().split())


def _entity(content: Any, facts: Sequence[Fact]) -> tuple[str, str] | tuple[()]:
    """The first field of the outermost object that identifies something, with its value."""
    if not isinstance(content, dict):
        return ()
    for field, record, text in facts:
        if not record and _identifies(field) and not isinstance(content.get(field), (list, dict)):
            told = normal(text)
            if told:
                return (field, told)
    return ()


@lru_cache(maxsize=8_192)
def _identifies(field: str) -> bool:
    return _IDENTIFYING.search(field) is not None


def call_subject(payload: ToolCalled, traced: Traced) -> str:
    """Key of what a call looks at: its tool and arguments. A call with a side effect does, it does not look."""
    if payload.side_effect:
        return ""
    arguments = msgspec.json.encode(traced.content, order="sorted").decode()  # integers of any length, unlike orjson
    return f"call:{digest(f'{payload.name}{chr(31)}{arguments}')}"


def entity_subject(entity: tuple[str, str] | tuple[()], attribute: str = "") -> str:
    """Key of what a card is about, or ``""``."""
    return f"entity:{digest(chr(31).join((*entity, attribute)))}" if entity else ""


def question_subject(traced: Traced) -> str:
    """Key of the question that a decision answers, or ``""``."""
    return f"question:{digest(traced.entity[1])}" if traced.entity and traced.entity[0] == "question" else ""


def text_subject(source: str, traced: Traced) -> str:
    """Key of what a card says, so that the same words twice are one card."""
    return f"text:{source}:{traced.text}"


def card_id(recorded: Recorded) -> str:
    """Id of the card that an event makes; unique over orgs and tasks."""
    event = recorded.event
    return "c" + digest(f"{event.org}\x1f{event.key}\x1f{event.id}")[:23]
