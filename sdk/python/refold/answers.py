"""What the backend's answer means for the events that were sent. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson

Verdict = Literal["delivered", "conflict", "refused"]

_DELIVERED = frozenset(("stored", "duplicate", "accepted"))
_TRANSIENT = frozenset((408, 425, 429))
_NOT_OURS = frozenset((401, 403, 404, 405))
_MAX_RETRY_AFTER_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What became of one event. ``code`` says which conflict or refusal; ``token`` is a position to read after."""

    verdict: Verdict
    code: str = ""
    message: str = ""
    field: str = ""
    winner: str = ""
    attempt: int = 0
    token: str = ""


@dataclass(frozen=True)
class Answered:
    """The backend judged each event, in the order they were sent."""

    outcomes: list[Outcome]


@dataclass(frozen=True)
class Away:
    """Nothing was judged: send the same events again, not before ``retry_after_s``."""

    message: str
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class TooLarge:
    """The request as a whole was refused: send fewer events at once."""

    message: str


Answer = Answered | Away | TooLarge


def read_answer(status: int, body: bytes, count: int, retry_after: str = "") -> Answer:
    """What an HTTP answer to ``count`` events means."""
    if status >= 500 or status in _TRANSIENT:
        wait = min(float(retry_after), _MAX_RETRY_AFTER_S) if retry_after.isdigit() else 0.0
        return Away(f"HTTP {status}: {_detail(body)}", wait)
    if status in _NOT_OURS:
        # a wrong key or address: mended outside, and then these events are wanted
        return Away(f"HTTP {status}: {_detail(body)}: check the address and the key")
    outcomes = _outcomes(body)
    if outcomes is not None and len(outcomes) == count:
        return Answered([_outcome(raw) for raw in outcomes])
    if 400 <= status < 500:
        if count > 1:
            return TooLarge(f"HTTP {status}: {_detail(body)}")
        return Answered([Outcome("refused", f"http_{status}", _detail(body))])
    return Away(f"HTTP {status} without an outcome for each event: is this a Refold backend?")


def _outcomes(body: bytes) -> list[dict[str, Any]] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    outcomes = value.get("outcomes") if isinstance(value, dict) else value
    if isinstance(outcomes, list) and all(isinstance(item, dict) for item in outcomes):
        return outcomes
    return None


def _outcome(raw: dict[str, Any]) -> Outcome:
    status = str(raw.get("status", ""))
    code = str(raw.get("code") or status)
    verdict: Verdict = "delivered" if status in _DELIVERED else "refused" if status == "refused" else "conflict"
    return Outcome(
        verdict,
        code,
        str(raw.get("message") or ""),
        str(raw.get("field") or ""),
        str(raw.get("winner") or ""),
        attempt if isinstance(attempt := raw.get("attempt"), int) else 0,
        str(raw.get("token") or raw.get("position") or ""),
    )


def _detail(body: bytes) -> str:
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:200].decode("utf-8", "replace")
    if isinstance(problem, dict):
        return str(problem.get("detail") or problem.get("title") or problem)[:300]
    return str(problem)[:300]
