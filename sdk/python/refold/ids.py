"""Ids, times, digests and idempotency keys, made locally."""

from __future__ import annotations

import os
import threading
import time
import uuid
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any

import orjson

_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """A UUIDv7: 48 bits of Unix milliseconds, then a counter, so that ids of one process sort as they were made."""
    global _last
    with _lock:
        # 60 bits: milliseconds and a 12-bit counter that borrows from the next millisecond when it overflows
        _last = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        stamp = _last
    value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64
    value |= 0b10 << 62 | int.from_bytes(os.urandom(8), "big") >> 2
    return str(uuid.UUID(int=value))


def after_fork() -> None:
    """Make the id lock new: a thread of the parent may have held it in the moment of the fork."""
    global _lock
    _lock = threading.Lock()


def now() -> str:
    """This moment, RFC 3339 with an offset."""
    return datetime.now(timezone.utc).isoformat()


def canonical(value: Any) -> bytes:
    """JSON with sorted keys: equal values are equal bytes. ``value`` is plain (see ``plain.plain``)."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(value: Any) -> str:
    """``sha256:<hex>`` of text, or of the canonical JSON of anything else."""
    raw = value.encode() if isinstance(value, str) else canonical(value)
    return f"sha256:{sha256(raw).hexdigest()}"


def idempotency_key(task: str, step: str, tool: str, arguments: Any) -> str:
    """Names one side effect: of task, step, tool and arguments, never of the run, so that every attempt finds it again.

    >>> idempotency_key("t1", "pay", "transfer", {"a": 1, "b": 2}) == idempotency_key(
    ...     "t1", "pay", "transfer", {"b": 2, "a": 1})
    True
    """
    return sha256(canonical([task, step, tool, arguments])).hexdigest()[:32]
