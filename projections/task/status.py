"""Task status: one table from how a run ended, one rule for what is still open (DESIGN 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DONE = frozenset(("completed", "skipped"))
"""Step statuses that need no more work."""

_VERDICTS: Mapping[str, str] = {
    "interrupt": "interrupted",
    "timeout": "interrupted",
    "budget_exhausted": "interrupted",
    "lost": "interrupted",
    "panic_stop": "interrupted",
    "cycle_detected": "failed",
    "error_streak": "failed",
}


def verdict(reason: str, outcome: str | None, task: Mapping[str, Any]) -> str:
    """How a run leaves its task. An explicit outcome wins.

    ``end_turn`` completes the task when nothing is open: no planned step, no approval somebody still has to give, no
    blocker. With something open the task is blocked.
    """
    if outcome:
        return outcome
    if reason == "end_turn":
        is_open = task["steps_open"] or task["approvals_pending"] or task["blockers_open"]
        return "blocked" if is_open else "completed"
    return _VERDICTS[reason]


def interrupts(reason: str, left_as: str) -> bool:
    """Whether a run that ended so was cut off rather than finished."""
    return left_as == "interrupted" or _VERDICTS.get(reason) == "interrupted"


def status(task: Mapping[str, Any]) -> str:
    """Status of a task as its row stands. While a run goes on, a pending approval outranks a blocker."""
    left_as: str = task["verdict"]
    if left_as:
        return "waiting_approval" if left_as == "blocked" and task["approvals_pending"] else left_as
    if task["approvals_pending"]:
        return "waiting_approval"
    if task["blockers_open"]:
        return "blocked"
    return "in_progress" if task["active"] else "planned"
