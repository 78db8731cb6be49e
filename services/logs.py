"""Logging: one line an occurrence, on stderr. No event's contents are ever logged: tenants are walls."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import RedisError

from events.errors import RefoldError

_MAY_SPEAK = (RefoldError, RedisError, OSError)


class _OneLine(logging.Formatter):
    """``2026-03-01T10:00:00.123+00:00 WARNING refold.inbox message``, newlines escaped; tracebacks when asked for."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._tracebacks = tracebacks

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """RFC 3339 in UTC, to the millisecond."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def formatException(self, ei: Any) -> str:
        """The error in brief, or with its traceback."""
        return super().formatException(ei) if self._tracebacks else brief(ei[1])

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


def set_up_logging(level: str) -> None:
    """Send every log line of this process to stderr, in one form, whichever library wrote it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(tracebacks=level == "DEBUG"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("uvicorn", "alembic", "httpx", "mcp", "asyncio", "refold.faststream"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def brief(error: BaseException) -> str:
    """An error in half a line: its kind, what it says, and where it was raised.

    Errors of Refold, of Redis and of the machine may speak, in one line; what others say may quote an event.
    """
    lines = str(error).splitlines() if isinstance(error, _MAY_SPEAK) else []
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {'/'.join(frames[-1].filename.split('/')[-3:])}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{': ' + lines[0][:200] if lines else ''}{place}"
