"""The runs that were labelled by hand, from their text: what happened, and what somebody says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from events import door
from events.event import Position, Recorded
from events.registry import decode_payload

LABELLED = Path(__file__).resolve().parents[1] / "fixtures" / "labelled_runs.txt"


@dataclass
class Labelled:
    """One run and its labels; ``above`` is tool -> (failed before, calls before, fails more than always)."""

    name: str
    events: list[Recorded] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    put_down: dict[str, set[str]] = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    deviation: str = ""
    above: dict[str, tuple[int, int, bool]] = field(default_factory=dict)


def labelled_runs() -> list[Labelled]:
    """All of them."""
    blocks = re.split(r"^== ", LABELLED.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [_run(block) for block in blocks]


def _run(block: str) -> Labelled:
    told, _, labels = block.partition("\n--\n")
    name, *lines = told.splitlines()
    run = Labelled(name)
    for n, (kind, data) in enumerate(_events([line for line in lines if line.strip()])):
        raw = {"id": f"e{n}", "type": kind, "run": "r1", "task": "t1", "data": data}
        event = door.admit(raw)
        run.events.append(Recorded(0, Position(1, n), event, decode_payload(event)))
    for line in filter(str.strip, labels.splitlines()):
        _label(run, line)
    return run


def _label(run: Labelled, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "mute":
        run.mute.add(rest)
    elif word == "deviation":
        run.deviation = rest
    elif word == "above":
        tool, counts, answer = rest.split(" ")
        failed, calls = map(int, counts.split("/"))
        run.above[tool] = (failed, calls, answer == "yes")
    else:
        found = re.fullmatch(r"(.+?) (\w*success|\w+_failure|unfinished)((?: (?:plan|tool|luck))*)", line)
        assert found is not None, f"{run.name}: {line}"
        run.nodes[found[1]] = found[2]
        run.put_down[found[1]] = set(found[3].split())


def _events(lines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    started: dict[str, Any] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "budget":
            started["budget"] = orjson.loads(rest)
        elif word == "goal":
            yield "run.started", {**started, "goal": rest}
        else:
            yield _event(word, rest)


def _event(word: str, rest: str) -> tuple[str, dict[str, Any]]:
    first, _, more = rest.partition(" ")
    match word:
        case "plan":
            return "plan.updated", {"steps": [{"id": step.strip()} for step in rest.split("|")]}
        case "begin":
            return "step.started", {"step": rest}
        case "done":
            return "step.completed", {"step": rest}
        case "skip":
            return "step.skipped", {"step": rest}
        case "fail":
            step, _, error = rest.partition(": ")
            return "step.failed", {"step": step, "error": error}
        case "call":
            name, _, given = more.partition(" ")
            arguments, _, step = given.partition(" @")
            return "tool.called", {"call_id": first, "name": name, "arguments": orjson.loads(arguments), "step": step}
        case "ok":
            return "tool.returned", {"call_id": first, "result": orjson.loads(more) if more[:1] in ("{", "[") else more}
        case "no":
            return "tool.failed", {"call_id": first, "error": more}
        case "say":
            return "message.added", {"role": "assistant", "content": rest}
        case "score":
            return "feedback.given", {"score": float(first), "by": more, "target_kind": "run"}
        case "ask":
            return "approval.requested", {"approval": first, "action": more}
        case "deny":
            return "approval.resolved", {"approval": first, "approved": False}
        case "end":
            return "run.terminated", {"reason": first, **({"outcome": more} if more else {})}
        case _:
            raise AssertionError(f"no such word: {word}")
