"""Partition keys: what keeps its order, and where it lives.

A key names its family, so that a task can never collide with a scope: ``task/<task>``, ``session/<session>``,
``user/<user>``, ``agent/<agent>``, ``org``, and ``partition/<p>`` for what goes to every partition.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from events.errors import Refused
from events.types.base import Level

_LEVEL_OF_KIND: dict[str, Level] = {
    "preference": "user",
    "fact": "user",
    "correction": "user",
    "user_preference": "user",
    "learning": "agent",
    "procedure": "agent",
    "tool_reliability": "agent",
    "plan_pattern": "agent",
    "convention": "org",
}


def partition_of(org: str, key: str, partitions: int) -> int:
    """Partition of a key: the first 8 bytes of BLAKE2b of ``org \\x1f key``, big-endian, modulo the count.

    A key of the ``partition/<p>`` family goes to partition p itself.

    >>> [partition_of("default", key, 8) for key in ("task/t1", "user/u1", "agent/coder", "org", "partition/6")]
    [4, 0, 5, 3, 6]
    """
    if key.startswith("partition/"):
        return int(key.removeprefix("partition/")) % partitions
    digest = blake2b(f"{org}\x1f{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions


def task_key(task: str) -> str:
    """Key of everything that belongs to one task."""
    return f"task/{task}"


def session_key(session: str) -> str:
    """Key of everything that belongs to one session."""
    return f"session/{session}"


def scope_key(level: Level, *, user: str, agent: str) -> str:
    """Key of a scope at a level. Raises Refused when the event does not name who the scope belongs to."""
    if level == "org":
        return "org"
    name = user if level == "user" else agent
    if not name:
        raise Refused(f"this event belongs to the {level}'s scope: give `{level}`", code="missing_scope", field=level)
    return f"{level}/{name}"


def level_of(payload: Any) -> Level | None:
    """The level that a payload names, or that its kind fixes; None when it says neither."""
    explicit: Level | None = getattr(payload, "scope", None)
    return explicit or _LEVEL_OF_KIND.get(getattr(payload, "kind", ""))


def partition_key(keyed_by: str, payload: Any, *, task: str, session: str, user: str, agent: str) -> str:
    """Partition key of an event by its type's rule (``events.registry.KeyedBy``).

    ``task`` is the task, or the run id of a run without one. Raises Refused when a needed name is missing.
    """
    match keyed_by:
        case "settlement" if session:
            return session_key(session)
        case "feedback" if not task:
            level: Level = "user" if user else "agent" if agent else "org"
            return scope_key(level, user=user, agent=agent)
        case "task" | "settlement" | "feedback":
            if not task:
                raise Refused("this event belongs to a run: give `run` (and `task`)", code="missing_run", field="run")
            return task_key(task)
        case "discarded":
            return str(payload.partition_key)
        case "partition":
            return f"partition/{payload.partition}"
        case _:
            fallback: Level = "user" if user else "agent" if agent else "org"
            return scope_key(level_of(payload) or fallback, user=user, agent=agent)
