"""SWE-agent trajectories: ``.traj`` files, files with a history alone, and the bare message lists of mini-SWE-agent.

======================  ====================================================================
source                  events
======================  ====================================================================
system message          ``run.started`` (system prompt by address; goal = the issue)
demonstration, issue    ``message.added``
one step                ``step.started``, ``message.added`` (the thought), ``tool.called``,
                        ``tool.returned`` or ``tool.failed``, ``step.completed`` or ``step.failed``
``info.model_stats``    ``model.responded`` (the run's totals)
``info.submission``     ``artifact.created``
``info.exit_status``    the reason of ``run.terminated``
======================  ====================================================================

A tool call is what the model asked for where the file has it (function calling), else the command line: its first
word is the tool's name, the whole line its ``command`` argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.importers.run import Imported, RunWriter, Skipped, addressed, run_id
from services.importers.source import count, decode, digest, json_or_text, number, parse, text_of

FORMAT = "swe-agent"
_ISSUE = (
    re.compile(r"ISSUE:[ \t]*\n(.*?)\n\s*INSTRUCTIONS:", re.DOTALL),
    re.compile(r"<pr_description>\s*(.*?)\s*</pr_description>", re.DOTALL),
    re.compile(r"solve this issue:\s*(.*?)\n\s*\nYou can ", re.DOTALL),
)
_BLOCK = re.compile(r"```(?:mswea_bash_command|bash|sh)?[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_RETURN_CODE = re.compile(r"\s*<returncode>\s*(-?\d+)\s*</returncode>")
_FAILURE = re.compile(
    r"\s*(your proposed edit has introduced new syntax error|error\b|traceback \(|usage:|execution timed out"
    r"|command failed|command .{0,80} not found|/bin/bash: |bash: )",
    re.IGNORECASE,
)
_SUBMIT = re.compile(r"\s*(submit\b|echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT)")
_REASONS = (
    ("cost", "budget_exhausted"),
    ("context", "budget_exhausted"),
    ("limit", "budget_exhausted"),
    ("time", "timeout"),
    ("format", "error_streak"),
    ("interrupt", "interrupt"),
    ("error", "panic_stop"),
    ("submit", "end_turn"),
    ("forfeit", "end_turn"),
)
"""The first word found in an exit status decides; ``submitted (exit_cost)`` ran out of budget."""


@dataclass(frozen=True)
class Step:
    """One turn of the agent: what it thought, what it did, and what came back (None: nothing did)."""

    thought: str
    action: str
    observation: str | None
    calls: tuple[Mapping[str, Any], ...] = ()
    state: Any = None


def runs(name: str, raw: bytes, agent: str = "") -> Iterator[Imported]:
    """The run of a file. ``name`` is the file's name without its ending; ``agent`` overrides the agent's name."""
    document = parse(decode(raw))
    doc: dict[str, Any] = {"messages": document} if isinstance(document, list) else document
    messages = _messages(doc) if isinstance(doc, dict) else []
    steps = _steps(doc, messages) if isinstance(doc, dict) else []
    if not steps:
        yield Skipped(name, "it has neither `trajectory` nor `history` nor `messages` with an action")
        return
    default = "mini-swe-agent" if "messages" in doc else "swe-agent"
    writer = RunWriter(FORMAT, run_id(name, digest(agent, document)), agent or default)
    before = _before_first_action(messages)
    writer.tick(0)
    writer.add("run.started", _started(doc, before))
    for index, message in enumerate(before, 1):
        writer.tick(index)
        if message.get("role") != "system":
            said = {"role": "user", "content": message.get("content")}
            writer.add("message.added", {**said, "name": "demonstration" if message.get("is_demo") else ""})
    for index, step in enumerate(steps, 1):
        writer.tick(len(before) + 2 * index)
        _add_step(writer, index, step)
    writer.tick(len(before) + 2 * len(steps) + 2)
    _finish(writer, doc, steps[-1])
    yield writer.done()


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _messages(doc: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _dicts(doc.get("history")) or _dicts(doc.get("messages"))


def _before_first_action(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next((i for i, message in enumerate(messages) if _is_action(message)), len(messages))
    return messages[:first]


def _is_action(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" and not message.get("is_demo")


def _started(doc: Mapping[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
    system = next((message for message in before if message.get("role") == "system"), {})
    asked = [text_of(m.get("content")) for m in before if m.get("role") != "system" and not m.get("is_demo")]
    text = asked[-1] if asked else ""
    issue = next((match[1] for pattern in _ISSUE if (match := pattern.search(text))), text)
    return {"goal": issue.strip(), "model": _model(doc), "system_prompt": addressed(system.get("content"))}


def _model(doc: Mapping[str, Any]) -> str:
    config: Any = json_or_text(doc.get("replay_config"))
    for source in (config, doc.get("info")):
        value: Any = source
        for path in (("agent", "model", "name"), ("config", "model", "model_name")):
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, str):
                return value
            value = source
    return ""


def _steps(doc: Mapping[str, Any], messages: list[dict[str, Any]]) -> list[Step]:
    trajectory = _dicts(doc.get("trajectory"))
    return _from_trajectory(trajectory, messages) if trajectory else _from_messages(messages)


def _from_trajectory(trajectory: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[Step]:
    """Steps as recorded. Tool calls stand only in the history, which may lack steps: matched in order by the action."""
    actions = [message for message in messages if _is_action(message)]
    steps = []
    for entry in trajectory:
        action = str(entry.get("action") or "")
        calls = _dicts(entry.get("tool_calls"))
        if actions and str(actions[0].get("action") or "").strip() == action.strip():
            calls = calls or _dicts(actions[0].get("tool_calls"))
            actions.pop(0)
        seen = entry.get("observation")
        thought = str(entry.get("thought") or entry.get("response") or "")
        observation = None if seen is None else text_of(seen)
        steps.append(Step(thought, action, observation, tuple(calls), json_or_text(entry.get("state"))))
    return steps


def _from_messages(messages: list[dict[str, Any]]) -> list[Step]:
    steps = []
    for index, message in enumerate(messages):
        if not _is_action(message):
            continue
        content, calls = text_of(message.get("content")), tuple(_dicts(message.get("tool_calls")))
        block = _BLOCK.search(content)
        action = str(message.get("action") or (block[1] if block else ""))
        thought = str(message.get("thought") or (content[: block.start()] if block else content))
        after = messages[index + 1] if index + 1 < len(messages) else {}
        seen = text_of(after.get("content")) if after.get("role") in ("tool", "user") else None
        steps.append(Step(thought.strip(), action, seen, calls))
    return steps


def _add_step(writer: RunWriter, index: int, step: Step) -> None:
    name = f"step-{index}"
    title = step.action.strip().partition("\n")[0][:200]
    writer.add("step.started", {"step": name, "title": title})
    if step.thought.strip():
        writer.add("message.added", {"role": "assistant", "content": step.thought})
    call_ids = []
    for number_in_step, (tool, arguments) in enumerate(_calls(step), 1):
        call_ids.append((f"{name}-call-{number_in_step}", tool))
        called = {"call_id": call_ids[-1][0], "name": tool, "arguments": arguments, "step": name}
        writer.add("tool.called", called)
    if step.observation is None:
        return
    failed = _failed(step.observation)
    for call_id, tool in call_ids:
        what = {"error": step.observation} if failed else {"result": step.observation}
        writer.add("tool.failed" if failed else "tool.returned", {"call_id": call_id, "name": tool, **what})
    if failed:
        first_line = step.observation.strip().partition("\n")[0][:500]
        writer.add("step.failed", {"step": name, "title": title, "error": first_line})
    else:
        writer.add("step.completed", {"step": name, "title": title, "result": step.state})


def _calls(step: Step) -> list[tuple[str, Any]]:
    """(tool, arguments) of each call of a step."""
    found = []
    for call in step.calls:
        function = call.get("function") if isinstance(call.get("function"), dict) else call
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(function, dict) and isinstance(name, str) and name:
            found.append((name, json_or_text(function.get("arguments"))))
    if found or not step.action.strip():
        return found
    word = step.action.split(maxsplit=1)[0]
    return [(word if re.fullmatch(r"[\w.-]{1,64}", word) else "bash", {"command": step.action})]


def _failed(observation: str) -> bool:
    code = _RETURN_CODE.match(observation)
    return int(code[1]) != 0 if code else _FAILURE.match(observation) is not None


def _finish(writer: RunWriter, doc: Mapping[str, Any], last: Step) -> None:
    found = doc.get("info")
    info: dict[str, Any] = found if isinstance(found, dict) else {}
    stats = info.get("model_stats")
    if isinstance(stats, dict) and (stats.get("tokens_sent") or stats.get("api_calls")):
        tokens = {"tokens_in": count(stats.get("tokens_sent")), "tokens_out": count(stats.get("tokens_received"))}
        writer.add("model.responded", {**tokens, "cost": number(stats.get("instance_cost"))})
    patch = info.get("submission")
    if isinstance(patch, str) and patch.strip():
        size = len(patch.encode("utf-8", "surrogatepass"))
        artifact = {"name": "submission.patch", "kind": "patch", "digest": digest(patch), "size_bytes": size}
        writer.add("artifact.created", {**artifact, "content": patch})
    status = str(info.get("exit_status") or "")
    if not status:
        reason = "end_turn" if _SUBMIT.match(last.action) else "interrupt"
    else:
        reason = next((reason for word, reason in _REASONS if word in status.lower()), "interrupt")
    outcome = "completed" if reason == "end_turn" and "forfeit" not in status else None
    writer.add(
        "run.terminated",
        {"reason": reason, "outcome": "failed" if "forfeit" in status else outcome, "detail": status},
    )
