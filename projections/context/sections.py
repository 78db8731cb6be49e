"""The parts of a context but for the cards, as text: lines whose first words say what they are.

What changes with every call (counters, times) is left out, so that a part reads the same until something happens in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from projections.bounds import canonical
from projections.cards.secrecy.secrets import masked_text
from projections.context.cuts import cut, first_lines
from projections.context.filling import fill
from projections.context.material import Document, Material, Turn
from projections.context.rendering import one_line
from projections.context.sources import Needs
from projections.context.tokens import count
from projections.policy.text import tell

_MARKS = {"completed": "x", "skipped": "-", "failed": "!", "in_progress": ">"}
_SESSION = (
    "goal", "current_phase", "pending_task", "completed_actions", "key_decisions", "rejected_paths", "open_questions",
    "action_items",
)  # fmt: skip
_LATEST = 10
"""Decisions and notes of a task that are told, the latest."""


def state_text(material: Material, tokens: int) -> str:
    """Where the task stands, then what its session left; secrets masked, as in cards."""
    goal = (material.state or {}).get("goal") or ""
    lines = (*_task_lines(material.state), *_session_lines(material.session, goal))
    return first_lines([masked_text(line) for line in lines], tokens)


def policy_text(material: Material, tokens: int) -> str:
    """What was learned to do, and what to confirm first because it went wrong before."""
    return tell(material.policy, tokens).text


def evidence_text(material: Material, tokens: int) -> str:
    """What runs did that left no notes of their own."""
    return first_lines([f"- {one_line(_said(item))}" for item in material.evidence], tokens)


def turns_text(turns: Sequence[Turn], tokens: int) -> str:
    """The latest messages that fit, oldest first; of a single one that does not, its head."""
    kept: list[str] = []
    size = 0
    for turn in reversed(turns):
        line = f"{turn.role}: {one_line(turn.text)}"
        size += count(line) + 1
        if size > tokens:
            head = "" if kept else cut(line, tokens)
            return "\n".join(reversed([*kept, head] if head else kept))
        kept.append(line)
    return "\n".join(reversed(kept))


def recalled_text(material: Material, tokens: int) -> str:
    """What the query brought: memories, a line each, then cards of other tasks."""
    told = first_lines([one.line for one in material.brought], tokens)
    return "\n".join(filter(None, (told, fill(material.recalled, Needs(), tokens - count(told) - 1).text)))


def originals_text(material: Material, tokens: int) -> str:
    """The originals that were asked for, each with the card it belongs to; the later ones are cut first."""
    texts: list[str] = []
    left = tokens
    for original in material.originals:
        text = cut(f"#{original.place} original of card {original.card}\n{original.text}", left)
        left -= count(text) + 1
        if text:
            texts.append(text)
    return "\n".join(texts)


def _task_lines(state: Document | None) -> Iterator[str]:
    if state is None:
        return
    if goal := state.get("goal"):
        yield f"goal: {one_line(str(goal))}"
    yield f"status: {state['status']}"
    for step in state.get("plan") or ():
        title = step.get("title") or step["step"]
        result = f" -> {_said(step['summary'])}" if step.get("summary") else ""
        yield f"[{_MARKS.get(step['status'], ' ')}] {one_line(title + result)}"
    for blocker in state.get("blockers") or ():
        if blocker.get("open"):
            yield f"blocked: {one_line(blocker.get('description') or blocker['blocker'])}"
    for approval in state.get("approvals") or ():
        if approval.get("pending"):
            yield f"waits for approval: {one_line(approval.get('action') or approval['approval'])}"
    for decision in list(state.get("decisions") or ())[-_LATEST:]:
        question = f"{decision['question']}: " if decision.get("question") else ""
        yield f"decided: {one_line(question + _said(decision.get('chosen')))}"
    for note in list(state.get("notes") or ())[-_LATEST:]:
        verify = " (verify again)" if note.get("stale") or note.get("verify") else ""
        yield f"note {one_line(note['note'])}: {one_line(_said(note.get('content')))}{verify}"


def _session_lines(session: Document | None, goal: str) -> Iterator[str]:
    """What the session left. Its goal is told only where it is not the task's, and never by the same word."""
    left = (session or {}).get("state") or {}
    for name in _SESSION:
        value = left.get(name)
        if not value or (name == "goal" and _said(value) == goal):
            continue
        yield f"{'session_goal' if name == 'goal' and goal else name}: {one_line(_said(value))}"


def _said(value: Any) -> str:
    """A JSON value as a person would write it on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_said(item)}" for name, item in value.items() if item not in (None, "", [], {}))
    if isinstance(value, (list, tuple)):
        return "; ".join(_said(item) for item in value)
    return canonical(value)
