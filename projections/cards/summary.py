"""What a card says: a skeleton of JSON, the telling lines of prose, one line of a decision. Without a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from events.types.thought import DecisionMade
from projections.bounds import clip
from projections.cards.values import of_text, parsed

LIMIT = 800
"""Longest summary, in code points; it ends between graphemes."""

_LEAF = 120
_MAX_ITEMS = 12
_MAX_LINES = 400
_WORDS = {None: "null", True: "true", False: "false"}


def of_result(value: Any) -> str:
    """A tool's result: JSON as ``path: value`` pairs, prose by its lines that hold values."""
    value = parsed(value)
    return of_prose(value) if isinstance(value, str) else clip("; ".join(_pairs(value)), LIMIT)


def _pairs(value: Any) -> Iterator[str]:
    size = 0
    for pair in _walk(value, ""):
        yield pair
        size += len(pair) + 2
        if size > LIMIT:
            return


def _walk(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if all(not isinstance(item, (dict, list)) for item in value):
            yield f"{path or 'items'}: {', '.join(_leaf(item) for item in value[:_MAX_ITEMS])}{_more(value)}"
            return
        for place, item in enumerate(value[:_MAX_ITEMS]):
            yield from _walk(item, f"{path}[{place}]")
        if len(value) > _MAX_ITEMS:
            yield f"{path or 'items'}: {len(value)} in all"
    else:
        yield f"{path}: {_leaf(value)}" if path else _leaf(value)


def _more(items: list[Any]) -> str:
    return f" ({len(items)} in all)" if len(items) > _MAX_ITEMS else ""


def _leaf(value: Any) -> str:
    text = value if isinstance(value, str) else _scalar(value)
    return clip(" ".join(text.split()), _LEAF)


def _scalar(value: Any) -> str:
    """A JSON scalar as JSON writes it; integers beyond 64 bits stay exact."""
    return _WORDS[value] if value is None or isinstance(value, bool) else str(value)


def of_prose(text: str) -> str:
    """Prose: all of it when it is short, else its first line and those that hold traced values."""
    if len(text) <= LIMIT:
        return text.strip()
    lines = [line.strip() for line in text[:65_536].splitlines() if line.strip()][:_MAX_LINES]
    kept: list[str] = []
    size = 0
    for place, line in enumerate(lines):
        if place == 0 or of_text(line):
            kept.append(line)
            size += len(line) + 1
        if size > LIMIT:
            break
    return clip("\n".join(kept), LIMIT)


def of_decision(payload: DecisionMade) -> str:
    """A decision in one paragraph: what was chosen, over what, and why."""
    text = f"{payload.question}: {payload.chosen}" if payload.question else payload.chosen
    if payload.alternatives:
        text += f" (rather than {'; '.join(_leaf(item) for item in payload.alternatives[:_MAX_ITEMS])})"
    return clip(f"{text} — {payload.rationale}" if payload.rationale else text, LIMIT)


def message_text(content: Any) -> str:
    """The text of a message: itself, or its text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in content]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
