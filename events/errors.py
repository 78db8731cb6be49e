"""Every error Refold raises on purpose, in three families: what the caller did, what will pass, what will not.

The docstring of a class is its default message. HTTP codes are known in the API layer alone.
"""

from __future__ import annotations

from typing import Any


class RefoldError(Exception):
    """Refold failed."""

    def __init__(self, message: str = "", **context: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.context = context


class Refused(RefoldError):
    """The event was refused; nothing of it is stored.

    ``code`` is a stable, machine-readable reason; ``field`` names the place, where there is one.
    """

    def __init__(self, message: str = "", *, code: str = "invalid", field: str = "", **context: Any) -> None:
        super().__init__(message, **context)
        self.code = code
        self.field = field


class Transient(RefoldError):
    """Something outside failed in a way that passes; the same call may succeed later."""


class Fenced(Transient):
    """The partition is closed until recovery has re-opened it; try again shortly."""


class LogFull(Transient):
    """The archive is too far behind the log; publishing waits until it has caught up."""


class Poison(RefoldError):
    """The event cannot be folded, now or later, by the code that is running."""


class NewerVersion(Poison):
    """The event is of a newer version than this code knows; it waits for an upgrade."""


class SetupError(RefoldError):
    """Refold cannot start as it is set up; the message says what to do."""


class Unreachable(SetupError):
    """What Refold needs does not answer; it may be starting, or be named wrongly."""
