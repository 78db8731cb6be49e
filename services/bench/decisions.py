"""The decisions of recorded runs that a context is measured by: tool calls whose arguments came from earlier results.

A call counts from the fourth of its run on. What it *needs* are the values of its arguments, at least three characters
long as text, that stand in results before it. A value is *labelled* in a context where a name of its field stands close
before it on the same line; where it has no field, as a path in a list of paths, the name of its tool. In prose it is
where its sentence stands whole (*in its sentence*), or where the word before it in its sentence stands before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from events.event import Event
from projections.cards.reading.facts import Fact, facts_of
from projections.cards.reading.tokens import spans
from projections.cards.summary import message_text
from projections.context.shapes import is_prose, telling
from projections.context.tokens import weigh

FIRST_CALL = 4
SHORTEST = 3
NEAR = 80
"""Characters between a field's name and its value, at most."""

_WORD_BEFORE = re.compile(r"(?:([\u3040-\u30ff\u3400-\u9fff]{1,2})|([^\W\d_][^\W_]*))[\W_]*$")


class Message(NamedTuple):
    """A message of a run's history as a model is sent it, and its tokens."""

    role: str
    text: str
    tokens: float


@dataclass
class History:
    """What a run's messages were so far, after the system prompt."""

    messages: list[Message] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    facts: list[list[Fact]] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    def add(self, event: Event) -> None:
        """One more event of the run; those that are no message change nothing."""
        data = json.loads(event.data)
        match event.type:
            case "message.added" if data.get("role") not in ("system", "developer"):
                self._say(data.get("role", "user"), message_text(data.get("content")))
            case "tool.called":
                self.calls += 1
                self.tools[data.get("call_id", "")] = data.get("name", "")
                called = {"name": data.get("name", ""), "arguments": data.get("arguments")}
                self._say("call", json.dumps(called, ensure_ascii=False))
            case "tool.returned" | "tool.failed":
                value = data.get("result", data.get("error", ""))
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                self._say("tool", text)
                self.results.append(text)
                self.facts.append(_named(facts_of(value), self.tools.get(data.get("call_id", ""), "")))

    def _say(self, role: str, text: str) -> None:
        if text:
            self.messages.append(Message(role, text, weigh(text)))

    @property
    def tokens(self) -> float:
        """Of all messages so far."""
        return sum(message.tokens for message in self.messages)

    def needs(self, arguments: Any) -> list[str]:
        """The values of a call's arguments that stand in results so far, in order."""
        texts = dict.fromkeys(text for text in leaves(arguments) if len(text) >= SHORTEST)
        return [text for text in texts if any(text in result for result in self.results)]


def _named(facts: Sequence[Fact], tool: str) -> list[Fact]:
    """The facts, those without a field that are values by themselves (paths in a list) under the name of the tool."""
    return [fact if fact.field or is_prose("", fact.text) else fact._replace(field=tool) for fact in facts]


def leaves(value: Any) -> Iterator[str]:
    """The scalars of a JSON value as text; JSON within a text is opened."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, str):
        yield value
    elif value is not None:
        yield json.dumps(value)


def is_labelled(value: str, context: str, facts: Sequence[Sequence[Fact]], *, by_words: bool = True) -> bool:
    """Whether a value stands in a context with a name of its field, or in its sentence.

    ``by_words``: or, where it has no field, behind the word that stands before it in its sentence.
    """
    names: set[str] = set()
    sentences: set[str] = set()
    for of_result in facts:
        for fact in of_result:
            path = [name for name in fact.field.split(".") if name not in ("", "*")]
            if value in fact.text:
                names |= set(path[-1:])
                sentences |= {fact.text} if len(fact.text) > len(value) else set()
                names |= words_before(value, fact.text) if by_words and not path else set()
            if value in path[1:]:
                names |= set(path[: path.index(value)][-1:])
            elif value in path:
                sentences |= {f"{value}: ", f'"{value}": '}  # a name of its own, of what follows it
    if any(sentence in context for sentence in sentences):
        return True
    return any(_is_named(value, line, names) for line in context.splitlines() if value in line)


def words_before(value: str, sentence: str) -> set[str]:
    """The word before each place of a value in a sentence; two letters of it where words have no spaces."""
    found: set[str] = set()
    for place in re.finditer(re.escape(value), sentence):
        word = _WORD_BEFORE.search(sentence, max(0, place.start() - NEAR), place.start())
        found |= {word[1] or word[2]} if word else set()
    return found


def _is_named(value: str, line: str, names: set[str]) -> bool:
    start = line.find(value)
    while start >= 0:
        before = line[max(0, start - NEAR) : start]
        if any(name in before for name in names):
            return True
        start = line.find(value, start + 1)
    return False


def distinct_values(facts: Sequence[Sequence[Fact]]) -> set[str]:
    """The values that results told so far, those of sentences, too: those that say something by themselves."""
    told = (text for of_result in facts for fact in of_result for text in _values(fact))
    return {text for text in told if len(text) >= SHORTEST and telling(text)}


def _values(fact: Fact) -> list[str]:
    if not is_prose(fact.field, fact.text):
        return [fact.text]
    return [fact.text[start:end] for start, end, _ in spans(fact.text)]
