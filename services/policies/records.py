"""The record of a policy that a task was told: what later counts for or against its rules is held against it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from events.times import written


def told_event(name: str, task: str, policy: Mapping[str, Any], now: datetime) -> dict[str, Any] | None:
    """The event for the door, a ``context.assembled`` of rules alone; None for a policy that tells none.

    ``policy`` is the document that was answered. Like the record of a context it names no run: an attempt that is over
    may still be looked at.
    """
    told = [[rule["scope"], rule["belief"]] for rule in (*policy["rules"], *policy["constraints"])]
    if not told:
        return None
    time = written(now)
    data = {"context": name, "now": time, "policy": told, "tokens": policy["tokens"]}
    return {
        "id": name, "type": "context.assembled", "source": "refold/policy", "time": time, "task": task, "data": data,
    }  # fmt: skip
