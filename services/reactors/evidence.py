"""What a run's own events prove it did: the mechanical settlement, when no model's notes can be had. Pure.

Each line is one fact, short enough to be pinned into the next context. What may have happened twice, or not at all,
says so: a call without an answer is no success. Secrets are masked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from projections.cards.secrecy import secrets
from services.reactors.trajectory import Call, Trajectory

LINE_CHARS = 240
_LOOKED_AT = 4_000
_KEY = ", idempotency key "
LINES_A_KIND = 12
"""Latest facts of one kind that are listed; older ones are counted."""

_CHANGES_FILES = re.compile(
    r"write|edit|create|patch|save|delete|remove|move|rename|append|replace|insert", re.IGNORECASE
)
_PATH_NAMES = ("path", "file_path", "file", "filename", "target_file", "destination")
_PATCH_NAMES = ("patch", "diff", "input")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)(\S[^\t\r\n]*)", re.MULTILINE)
"""The files of a patch, as it names them itself."""
_COMMAND_NAMES = ("command", "cmd", "script", "code")
_OUTPUT_NAMES = ("stderr", "stdout", "output", "text", "content")
_OUTCOME_CHARS = 100


def evidence(run: Trajectory) -> list[str]:
    """The facts, most useful first: what is open, what was done, what went wrong, what was decided."""
    calls = list(run.calls.values())
    returned = [call for call in calls if call.state == "returned"]
    done = [step for step in run.steps.values() if step.state == "completed"]
    kinds: tuple[Iterable[str], ...] = (
        (_open_call(call) for call in calls if call.state == "open"),
        (f"side effect done: {_named(call)}{_key(call)}" for call in returned if call.side_effect),
        _changed_files(returned),
        (f"artifact: {_joined(made.name, made.uri)}" for made in run.artifacts),
        (_command(call) for call in calls if _argument(call, _COMMAND_NAMES) and call.state != "open"),
        (f"step completed: {_joined(step.title or step.step, step.summary)}" for step in done),
        (f"step not finished: {_joined(step.title or step.step, step.error)}" for step in run.open_steps),
        (f"error: {_named(call)}: {call.error}" for call in calls if call.state == "failed"),
        (f"blocked by: {_joined(name, text)}" for name, text in run.blockers.items()),
        (f"waiting for approval: {_joined(name, text)}" for name, text in run.approvals.items()),
        (f"decided: {_joined(made.chosen, made.rationale)}" for made in run.decisions),
    )
    return [line for kind in kinds for line in _latest([clip(_safe(fact)) for fact in kind])]


def _safe(fact: str) -> str:
    """The fact without secrets; of a very long one its head, since no more of it is kept.

    An idempotency key looks like one, and is not: whoever repeats the call needs it.
    """
    told, mark, key = fact.rpartition(_KEY)
    return f"{secrets.masked((told if mark else key)[:_LOOKED_AT])}{mark}{key if mark else ''}"


def clip(text: str, chars: int = LINE_CHARS) -> str:
    """The text on one line of at most ``chars`` characters, never cut inside a visible character."""
    line = " ".join(text.split())
    if len(line) <= chars:
        return line
    cut = chars - 1
    while cut > 0 and (_joins(line[cut]) or line[cut - 1] == "\u200d"):
        cut -= 1
    return line[:cut] + "…"


def _joins(char: str) -> bool:
    return char == "\u200d" or unicodedata.category(char) in ("Mn", "Me", "Mc") or "\U0001f3fb" <= char <= "\U0001f3ff"


def _latest(facts: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(facts))
    older = len(distinct) - LINES_A_KIND
    if older <= 0:
        return distinct
    kind = distinct[0].split(":", 1)[0]
    return [f"{kind}: {older} earlier ones are not listed", *distinct[older:]]


def _open_call(call: Call) -> str:
    kind = "side effect" if call.side_effect else "call"
    return f"{kind} without an answer, check before repeating: {_named(call)}{_key(call)}"


def _changed_files(returned: Iterable[Call]) -> Iterable[str]:
    for call in returned:
        if not (call.side_effect or _CHANGES_FILES.search(call.name)):
            continue
        path = _argument(call, _PATH_NAMES)
        for changed in [path] if path else dict.fromkeys(_PATCHED.findall(_argument(call, _PATCH_NAMES))):
            yield f"file changed: {changed} ({call.name})"


def _command(call: Call) -> str:
    """A command and its outcome: the error or ``ok``, and the last line of what it wrote."""
    command, last = clip(_argument(call, _COMMAND_NAMES), _OUTCOME_CHARS), _last_line(call.result)
    return f"command: {command}: {call.error or 'ok'}{f': {last}' if last and last != call.error else ''}"


def _last_line(result: Any) -> str:
    if isinstance(result, dict):
        result = next(
            (text for name in _OUTPUT_NAMES if isinstance(text := result.get(name), str) and text.strip()), ""
        )
    if not isinstance(result, str):
        return ""
    lines = result[-_LOOKED_AT:].strip().splitlines()
    return clip(lines[-1], _OUTCOME_CHARS) if lines else ""


def _named(call: Call) -> str:
    return f"{call.name or 'a call'} ({call.call_id})"


def _key(call: Call) -> str:
    return f"{_KEY}{call.idempotency_key}" if call.idempotency_key else ""


def _argument(call: Call, names: Sequence[str]) -> str:
    arguments: Any = call.arguments
    if not isinstance(arguments, dict):
        return ""
    return next((value for name in names if isinstance(value := arguments.get(name), str) and value), "")


def _joined(name: str, detail: str) -> str:
    return f"{name}: {detail}" if detail else name
