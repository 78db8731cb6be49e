"""Partition keys: what keeps its order, and where it lives.

A key names its family, so that a task can never collide with a scope: ``task/<task>``, ``session/<session>``,
``user/<user>``, ``agent/<agent>``, ``org``, and ``partition/<p>`` for what goes to every partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, cast, get_args

from events.errors import Refused
from events.types.base import Level

_KEY = re.compile(r"(?:task|session|user|agent)/[^\x1f]{1,256}|org|partition/[0-9]{1,6}")

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
    [7, 3, 3, 6, 6]
    """
    if key.startswith("partition/"):
        return int(key.removeprefix("partition/")) % partitions
    # cut from the full digest: ``digest_size=8`` would be another hash, which ``b2sum | cut -c1-16`` does not give
    digest = blake2b(f"{org}\x1f{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % partitions


def task_key(task: str) -> str:
    """Key of everything that belongs to one task."""
    return f"task/{task}"


def thread_task(thread: str) -> str:
    """The task under whose key the checkpoints of a thread live: apart from a task of the same name."""
    return f"thread:{thread}"


def items_task(collection: str) -> str:
    """The task under whose key the items of a collection live: of all namespaces that begin with this element."""
    return f"items:{collection}"


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


def members_of(scope: str) -> dict[str, str]:
    """The member of an event that puts it into a scope: what ``scope_key`` made its key of.

    >>> members_of("user/u1"), members_of("org")
    ({'user': 'u1'}, {})
    """
    level, _, name = scope.partition("/")
    return {level: name} if name else {}


def scopes_of(who: Mapping[str, Any]) -> Iterator[str]:
    """The scopes that somebody with these names (``user``, ``agent``) may see, the nearest first: nobody else's.

    >>> list(scopes_of({"user": "u1", "agent": ""}))
    ['user/u1', 'org']
    """
    yield from (f"{level}/{who[level]}" for level in ("user", "agent") if who.get(level))
    yield "org"


def level_of(payload: Any) -> Level | None:
    """The level that a payload names, or that its kind fixes; None when it says neither."""
    explicit: Level | None = getattr(payload, "scope", None)
    return explicit or _LEVEL_OF_KIND.get(getattr(payload, "kind", ""))


class Undecoded:
    """What the key rules ask of a payload that this code cannot decode yet: what it says in today's words."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        scope, kind, key = (data.get(name) for name in ("scope", "kind", "partition_key"))
        self.scope = cast(Level, scope) if scope in get_args(Level) else None
        self.kind = kind if isinstance(kind, str) else ""
        self.partition_key = key if isinstance(key, str) and _KEY.fullmatch(key) else ""
        number = data.get("partition")
        self.partition = number if isinstance(number, int) and number >= 0 else 0


def partition_key(keyed_by: str, payload: Any, who: Mapping[str, str]) -> str:
    """Partition key of an event by its type's rule (``events.registry.KeyedBy``).

    ``who`` holds ``task`` (the run id, for a run without one), ``session``, ``user`` and ``agent``. Raises Refused when
    a needed name is missing, or when the key that the payload names is none.
    """
    match keyed_by:
        case "settlement" if who["session"]:
            return session_key(who["session"])
        case "feedback" if not who["task"]:
            return _scope_of(payload, who)
        case "task" | "settlement" | "feedback":
            if not who["task"]:
                raise Refused("this event belongs to a run: give `run` (and `task`)", code="missing_run", field="run")
            return task_key(who["task"])
        case "discarded" if payload.partition_key:
            if not _KEY.fullmatch(payload.partition_key):
                raise Refused(
                    f"{payload.partition_key!r:.60} is no partition key", code="bad_data", field="data.partition_key"
                )
            return str(payload.partition_key)
        case "partition":
            return f"partition/{payload.partition}"
        case _:
            return _scope_of(payload, who)


def _scope_of(payload: Any, who: Mapping[str, str]) -> str:
    fallback: Level = "user" if who["user"] else "agent" if who["agent"] else "org"
    return scope_key(level_of(payload) or fallback, user=who["user"], agent=who["agent"])
