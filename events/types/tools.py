"""Tool calls and what came of them."""

from __future__ import annotations

import msgspec

from events.types.base import JsonValue, NonEmpty, Payload, Seconds


class ToolCalled(Payload, frozen=True, kw_only=True):
    """A tool is about to be called. ``idempotency_key`` is made of task, step, tool and arguments, never of the run."""

    call_id: NonEmpty
    name: NonEmpty
    arguments: JsonValue = None
    step: str = ""
    idempotency_key: str = ""
    side_effect: bool = False
    expected_s: Seconds | None = None


class ToolReturned(Payload, frozen=True, kw_only=True):
    """A call returned. ``late``: it came after its run was superseded by a newer attempt, and is kept all the same."""

    call_id: NonEmpty
    name: str = ""
    result: JsonValue = None
    late: bool = False


class LateResult(msgspec.Struct, frozen=True):
    """What the log itself reads of a result, whatever its version."""

    late: bool = False


class ToolFailed(Payload, frozen=True, kw_only=True):
    """A call failed."""

    call_id: NonEmpty
    name: str = ""
    error: str = ""
    late: bool = False
