"""What can go wrong when a model is asked, by the closed list of reasons that settlements name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from events.errors import RefoldError
from events.types.settlement import DegradedReason

LONGEST_WAIT_S = 300.0
"""What an endpoint may ask for with Retry-After; more is not waited for."""

_TOO_LONG = ("context_length", "context length", "context window", "maximum context", "too many tokens", "too long")
_NO_SUCH_MODEL = (401, 403, 404)


class ModelFailed(RefoldError):
    """A model gave no answer.

    ``reason`` is why; ``retry_s`` how long to wait before asking again, where the endpoint or its gate says so;
    ``called`` whether the endpoint was asked at all.
    """

    def __init__(
        self, reason: DegradedReason, message: str, *, retry_s: float | None = None, called: bool = True
    ) -> None:
        super().__init__(message)
        self.reason: DegradedReason = reason
        self.retry_s = retry_s
        self.called = called


def of_status(status: int, text: str, headers: Mapping[str, str]) -> ModelFailed:
    """What an HTTP answer that is no success means; ``text`` is what its body says."""
    said, lower = f"HTTP {status}: {text}", text.lower()
    if status == 429:
        return ModelFailed("rate_limited", said, retry_s=retry_after(headers))
    if status == 413 or any(mark in lower for mark in _TOO_LONG):
        return ModelFailed("context_too_long", said)
    if status in _NO_SUCH_MODEL:
        return ModelFailed("no_model", said)
    if status in (408, 504):
        return ModelFailed("timeout", said, retry_s=retry_after(headers))
    if status >= 500 or status == 409:
        return ModelFailed("unreachable", said, retry_s=retry_after(headers))
    return ModelFailed("refused", said)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None without one that can be read."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT_S) if seconds == seconds else None
