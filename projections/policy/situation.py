"""The context that triggers are asked about, as far as a task itself tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.cards.needs import declared

Document = Mapping[str, Any]

MAX_TOOLS = 512
"""Declared tools that are looked at."""


def situation(state: Document | None, tools: Any = None, /, **said: Any) -> dict[str, Any]:
    """Fields of the context of a task: who and what for, the mode and model of its run, the step that it is at, by id
    and title, and its declared tools (``tools``, in any of the usual forms). What is ``said`` and not empty goes first.
    """
    about = state or {}
    nothing: Document = {}
    run = next((one for one in reversed(about.get("runs") or ()) if one["run"] == about.get("run")), nothing)
    at = next((step for step in about.get("plan") or () if step["step"] == about.get("cursor")), nothing)
    known = {
        **{name: about.get(name) for name in ("task", "agent", "user", "session", "goal")},
        "mode": run.get("mode"),
        "model": run.get("model"),
        "step": [text for text in (at.get("step"), at.get("title")) if text],
        "tools": declared(tools)[:MAX_TOOLS],
        **{name: value for name, value in said.items() if value},
    }
    return {name: value for name, value in known.items() if value}
