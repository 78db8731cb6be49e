"""Every error the SDK raises on purpose. The docstring of a class is its default message."""

from __future__ import annotations


class RefoldError(Exception):
    """Refold failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class Conflict(RefoldError):
    """Another worker holds this task: this run can add nothing more.

    ``winner`` is the run that holds it and ``attempt`` its number, where the backend named them.
    """

    def __init__(self, message: str = "", *, winner: str = "", attempt: int = 0, code: str = "conflict") -> None:
        super().__init__(message)
        self.winner = winner
        self.attempt = attempt
        self.code = code


class Refused(RefoldError):
    """The backend refused the event; nothing of it is stored. ``code`` and ``field`` say why and where."""

    def __init__(self, message: str = "", *, code: str = "invalid", field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class Unavailable(RefoldError):
    """The backend did not answer in time; what was to be published is kept and will be sent later."""


class NotFound(RefoldError, LookupError):
    """The backend has no such thing."""


class NoCheckpoint(NotFound):
    """Nothing is saved for this task."""


class NewerCheckpoint(RefoldError):
    """The checkpoint is of a newer schema than this code knows: nothing was begun. ``version`` is the checkpoint's."""

    def __init__(self, message: str = "", *, version: str = "") -> None:
        super().__init__(message)
        self.version = version


class NoteConflict(RefoldError):
    """The note is not as its writer expected: it was not overwritten. ``version`` is the one that it has."""

    def __init__(self, message: str = "", *, note: str = "", version: int = 0) -> None:
        super().__init__(message)
        self.note = note
        self.version = version


class UncertainEffect(RefoldError):
    """An earlier attempt may have done this side effect: it is not repeated unless `already_done` can tell.

    ``key`` is the idempotency key of the call.
    """

    def __init__(self, message: str = "", *, key: str = "") -> None:
        super().__init__(message)
        self.key = key
