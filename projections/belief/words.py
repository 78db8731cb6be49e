"""What beliefs, notices and constraints say where nobody wrote words for them: made from counts and patterns."""

from __future__ import annotations

import re

CONFIRM = "here something went wrong; confirm first"
_DIGEST = re.compile(r"~[0-9a-f]{8}$")


def tool_words(tool: str, worked: int, failed: int) -> str:
    """How well a tool works."""
    return f"{tool} worked {worked} of {worked + failed} times"


def plan_words(path: str, worked: int, failed: int) -> str:
    """How well a path goes."""
    return f"going {path} led to the goal {worked} of {worked + failed} times"


def cause_words(tool: str, cause: str) -> str:
    """A causal pattern as people read it: without its tool, which is named beside it, and without its digest."""
    return _DIGEST.sub("", cause.removeprefix(f"{tool}: ")).replace("_", " ")


def notice_words(tool: str, cause: str) -> str:
    """What a notice says."""
    return f"{f'{tool}: ' if tool else ''}{CONFIRM}{_because(tool, cause)}"


def constraint_words(tool: str, cause: str, contexts: int) -> str:
    """What a constraint says."""
    what = f"do not use {tool}" if tool else "do not go on as before"
    return f"unless confirmed first, {what}: it failed for good in {contexts} different contexts{_because(tool, cause)}"


def _because(tool: str, cause: str) -> str:
    words = cause_words(tool, cause)
    return f" ({words})" if words else ""
