"""Chat trajectories in the OpenAI style: messages with ``tool_calls``, as one run, many runs, or JSON lines.

====================  ==================================================================
source                events
====================  ==================================================================
first system message  ``run.started`` (system prompt by address; goal = first user message)
other messages        ``message.added``; an assistant's tool calls ``tool.called``
tool message          ``tool.returned``, or ``tool.failed`` when its text says so
``usage``, ``cost``   ``model.responded``
``reward``            ``feedback.given``, and the outcome of ``run.terminated``
====================  ==================================================================

Understood: a list of messages; ``{"messages": [...]}`` (also ``traj``, ``trajectory``, ``conversation``); a list of
such records (tau-bench: ``{task_id, trial, reward, info, traj}``); ``{"simulations": [...]}``; and JSON lines of any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.importers.run import Imported, RunWriter, Skipped, addressed, run_id
from services.importers.source import count, decode, digest, documents, json_or_text, moment, number, text_of

FORMAT = "chat"
_CONVERSATION = ("traj", "messages", "trajectory", "conversation")
_NAMES = ("run_id", "id", "conversation_id")
_TIMES = ("timestamp", "created_at", "time")
_ROLES = {"system", "developer", "user", "assistant", "tool"}
_FAILURE = re.compile(r"\s*(error|exception|traceback)\b\s*[:(]", re.IGNORECASE)
_REASONS = {
    "max_steps": "budget_exhausted",
    "max_turns": "budget_exhausted",
    "too_many_errors": "error_streak",
    "timeout": "timeout",
    "interrupted": "interrupt",
}


def runs(name: str, raw: bytes, agent: str = "") -> Iterator[Imported]:
    """Every run of a file. ``name`` is the file's name without its ending, ``agent`` the agent of all its runs."""
    whole = list(documents(decode(raw)))
    if len(whole) > 1 and all(_is_message(document) for _, document in whole):
        whole = [(1, [document for _, document in whole])]
    for line, document in whole:
        records = _records(document)
        for index, record in enumerate(records, 1):
            part = f"line {line}" if len(whole) > 1 else f"record {index}"
            messages = _messages(record)
            if messages is None:
                yield Skipped(part, "it has no list of messages")
            else:
                label = f"{name}-{part.replace(' ', '-')}" if len(whole) + len(records) > 2 else name
                yield _run(_label(record, label), record, messages, agent)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def _records(document: Any) -> list[Any]:
    if isinstance(document, list):
        return [document] if document and _is_message(document[0]) else document
    if isinstance(document, dict) and isinstance(document.get("simulations"), list):
        return list(document["simulations"])
    return [document]


def _messages(record: Any) -> list[dict[str, Any]] | None:
    found = record
    if isinstance(record, dict):
        found = next((record[key] for key in _CONVERSATION if isinstance(record.get(key), list)), None)
    if isinstance(found, list) and all(_is_message(item) for item in found):
        return found
    return None


def _label(record: Any, fallback: str) -> str:
    if isinstance(record, dict):
        if "task_id" in record:
            trial = f"-trial-{record['trial']}" if "trial" in record else ""
            return f"task-{record['task_id']}{trial}"
        return next((str(record[key]) for key in _NAMES if record.get(key)), fallback)
    return fallback


def _run(label: str, record: Any, messages: list[dict[str, Any]], agent: str) -> Imported:
    meta: dict[str, Any] = record if isinstance(record, dict) else {}
    found = meta.get("info")
    info: dict[str, Any] = found if isinstance(found, dict) else {}
    name = agent or _text(meta.get("agent")) or "assistant"
    writer = RunWriter(FORMAT, run_id(label, digest(agent, record)), name, user=_user(meta, info))
    conversation = _Conversation(writer, messages)
    prompt = messages[0] if messages and messages[0]["role"] in ("system", "developer") else None
    first_user = next((message for message in messages if message["role"] == "user"), {})
    conversation.tick(0)
    writer.add(
        "run.started",
        {
            "goal": text_of(first_user.get("content")),
            "model": _text(meta.get("model")) or _text(info.get("model")),
            "system_prompt": addressed(prompt.get("content")) if prompt else None,
            "tools": addressed(meta.get("tools")),
        },
    )
    for index in range(1 if prompt else 0, len(messages)):
        conversation.add(index)
    conversation.tick(len(messages))
    _finish(writer, meta, info, answered=conversation.answered)
    return writer.done()


def _user(meta: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    task = info.get("task")
    return _text(meta.get("user")) or (_text(task.get("user_id")) if isinstance(task, dict) else "")


def _finish(writer: RunWriter, meta: Mapping[str, Any], info: Mapping[str, Any], *, answered: bool) -> None:
    """The reward, if any, and the termination: what the source says of it, else how the conversation ends."""
    given = meta.get("reward")
    if given is None and isinstance(meta.get("reward_info"), dict):
        given = meta["reward_info"].get("reward")
    reward = None if given is None else number(given)
    outcome = None
    if reward is not None:
        outcome = "completed" if reward >= 1 else "failed" if reward <= 0 else None
        writer.add("feedback.given", {"score": reward, "target_kind": "run", "target": writer.run, "by": "environment"})
    error = _text(info.get("error"))
    stated = _text(meta.get("termination_reason")) or _text(info.get("termination_reason"))
    if error:
        reason = "panic_stop"
    elif stated:
        reason = _REASONS.get(stated, "end_turn")
    else:
        reason = "end_turn" if answered or reward is not None else "interrupt"
    detail = error or stated or (f"reward {reward:g}" if reward is not None else "")
    writer.add("run.terminated", {"reason": reason, "outcome": outcome, "detail": detail})


class _Conversation:
    """Turns messages into events, pairing results with calls.

    Sources re-use call ids within one run, so the second call ``x`` becomes ``x#2``; a result belongs to the oldest
    call of its id that is still open.
    """

    def __init__(self, writer: RunWriter, messages: list[dict[str, Any]]) -> None:
        self.writer = writer
        self.messages = messages
        times = [next((moment(message[key]) for key in _TIMES if key in message), None) for message in messages]
        self.times = times if messages and all(times) else []
        self.uses: dict[str, int] = {}
        self.open: list[tuple[str, str, str]] = []
        self.answered = False

    def tick(self, index: int) -> None:
        if self.times:
            self.writer.at(self.times[min(index, len(self.times) - 1)])
        else:
            self.writer.tick(index)

    def add(self, index: int) -> None:
        message = self.messages[index]
        self.tick(index)
        if message["role"] in ("tool", "function"):
            self._result(message)
            self.answered = False
            return
        calls = _calls(message)
        content = message.get("content")
        if content not in (None, "") or not calls:
            role = message["role"] if message["role"] in _ROLES else "user"
            said = {"role": role, "content": content, "name": _text(message.get("name"))}
            self.writer.add("message.added", {**said, "reasoning": _text(message.get("reasoning_content"))})
        for call_id, name, arguments in calls:
            self._call(call_id, name, arguments)
        self._usage(message)
        self.answered = message["role"] == "assistant" and not calls

    def _call(self, given: str, name: str, arguments: Any) -> None:
        call_id = given or f"call-{len(self.uses) + 1}"
        self.uses[call_id] = self.uses.get(call_id, 0) + 1
        if self.uses[call_id] > 1:
            call_id = f"{call_id}#{self.uses[call_id]}"
        self.open.append((given, name, call_id))
        self.writer.add("tool.called", {"call_id": call_id, "name": name, "arguments": json_or_text(arguments)})

    def _result(self, message: Mapping[str, Any]) -> None:
        given, name = _text(message.get("tool_call_id")) or _text(message.get("id")), _text(message.get("name"))
        match = [call for call in self.open if (call[0] == given if given else not name or call[1] == name)]
        if match:
            self.open.remove(match[0])
        call_id = match[0][2] if match else given or f"orphan-{len(self.writer.events)}"
        name = name or (match[0][1] if match else "")
        content = message.get("content")
        if _failed(message, content):
            self.writer.add("tool.failed", {"call_id": call_id, "name": name, "error": text_of(content)})
        else:
            self.writer.add("tool.returned", {"call_id": call_id, "name": name, "result": content})

    def _usage(self, message: Mapping[str, Any]) -> None:
        usage = message.get("usage")
        if not isinstance(usage, dict):
            return
        tokens_in = count(usage.get("prompt_tokens", usage.get("input_tokens")))
        tokens_out = count(usage.get("completion_tokens", usage.get("output_tokens")))
        spent = {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost": number(message.get("cost"))}
        self.writer.add("model.responded", {"model": _text(message.get("model")), **spent})


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """(id, name, arguments) of each tool call of a message, in today's and in the older form."""
    found = message.get("tool_calls")
    calls = [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []
    older = message.get("function_call")
    if isinstance(older, dict):
        calls.append({"function": older})
    result = []
    for call in calls:
        function = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call)
        arguments = function.get("arguments", function.get("input"))
        result.append((_text(call.get("id")), _text(function.get("name")) or "tool", arguments))
    return result


def _failed(message: Mapping[str, Any], content: Any) -> bool:
    """Whether a tool message reports a failure: by flag, by an ``error`` member, or by how its text begins."""
    if message.get("is_error") is True or message.get("error") is True or message.get("status") == "error":
        return True
    text = text_of(content)
    if _FAILURE.match(text):
        return True
    value = json_or_text(text) if text.lstrip().startswith("{") else content
    return isinstance(value, dict) and bool(value.get("error") or value.get("is_error"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
