"""A run's conversation as its model saw it, rebuilt from the run's events: system prompt, messages, calls, results.

What is said stays as it was said. Calls go to the assistant's turn that made them, and each is followed by its result,
as endpoints ask for; a call that never got one says so. Tool schemas are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from events.event import Recorded
from events.types.thought import MessageAdded
from events.types.tools import ToolCalled, ToolFailed, ToolReturned
from projections.bounds import canonical

NO_RESULT = "[no result: the run ended before the call returned]"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass
class Turn:
    """One message as it goes to the model. ``event`` is the id of the event that holds the whole of its content."""

    message: dict[str, Any]
    event: str = ""

    @property
    def is_output(self) -> bool:
        """Whether it is what a tool gave."""
        return bool(self.message["role"] == "tool")


@dataclass
class _Call:
    id: str
    name: str = "tool"
    arguments: Any = None
    result: str | None = None
    event: str = ""
    is_said: bool = False


@dataclass
class _Said:
    """A turn of anybody, with the calls that an assistant's turn made."""

    message: dict[str, Any]
    event: str
    calls: list[_Call] = field(default_factory=list)


def conversation(events: Iterable[Recorded], system_prompt: Any = None) -> list[list[Turn]]:
    """The turns of a run, given its events in log order: an assistant's turn and the results of its calls together."""
    builder = _Builder()
    if system_prompt is not None:
        builder.said.append(_Said({"role": "system", "content": _content(system_prompt)}, ""))
    for recorded in events:
        builder.add(recorded)
    return [_turns(said) for said in builder.said]


class _Builder:
    def __init__(self) -> None:
        self.said: list[_Said] = []
        self._calls: dict[str, _Call] = {}

    def add(self, recorded: Recorded) -> None:
        payload, event = recorded.payload, recorded.event.id
        match payload:
            case MessageAdded(role="tool") if payload.call_id:
                self._result(payload.call_id, payload.name, _text(payload.content), event, is_said=True)
            case MessageAdded():
                self._message(payload, event)
            case ToolCalled():
                call = self._call(payload.call_id)
                call.name, call.arguments = payload.name, payload.arguments
            case ToolReturned():
                self._result(payload.call_id, payload.name, _text(payload.result), event)
            case ToolFailed():
                self._result(payload.call_id, payload.name, payload.error, event)
            case _:
                pass

    def _message(self, payload: MessageAdded, event: str) -> None:
        # a tool's words that belong to no call can only be told by somebody
        role = "user" if payload.role == "tool" else payload.role
        message = {"role": role, "content": _content(payload.content)}
        if _NAME.fullmatch(payload.name):
            message["name"] = payload.name
        is_prompt = len(self.said) == 1 and self.said[0].event == "" and role in ("system", "developer")
        if not (is_prompt and self.said[0].message["content"] == message["content"]):
            self.said.append(_Said(message, event))

    def _call(self, call_id: str) -> _Call:
        """The call of an id; a new one goes to the assistant's last turn, unless that has its results already."""
        if call_id not in self._calls:
            last = self.said[-1] if self.said else None
            if last is None or last.message["role"] != "assistant" or any(c.result is not None for c in last.calls):
                last = _Said({"role": "assistant", "content": None}, "")
                self.said.append(last)
            self._calls[call_id] = _Call(call_id)
            last.calls.append(self._calls[call_id])
        return self._calls[call_id]

    def _result(self, call_id: str, name: str, text: str, event: str, *, is_said: bool = False) -> None:
        """A call's result: what was said to the model counts before what the tool returned, the first before others."""
        call = self._call(call_id)
        if name and call.name == "tool":
            call.name = name
        if call.result is None or (is_said and not call.is_said):
            call.result, call.event, call.is_said = text, event, is_said


def _turns(said: _Said) -> list[Turn]:
    if not said.calls:
        return [Turn(said.message, said.event)]
    made = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _text(call.arguments) or "{}"}}
        for call in said.calls
    ]
    results = [
        Turn({"role": "tool", "tool_call_id": call.id, "content": NO_RESULT if call.result is None else call.result},
             call.event)
        for call in said.calls
    ]  # fmt: skip
    return [Turn({**said.message, "tool_calls": made}, said.event), *results]


def _content(value: Any) -> Any:
    """Content as an endpoint takes it: text, or a list of parts, as it was; else its JSON."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return value
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical(value)
