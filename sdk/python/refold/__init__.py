"""What agents import: publish a run to Refold, and go on with it after a crash.

>>> from refold import Refold
>>> client = Refold(agent="coder")  # doctest: +SKIP
"""

from refold.async_client import AsyncRefold, AsyncRun
from refold.client import Refold, Run
from refold.delivery import Policy
from refold.envelope import Wait
from refold.errors import (
    Conflict,
    NewerCheckpoint,
    NoCheckpoint,
    NoteConflict,
    NotFound,
    RefoldError,
    Refused,
    Unavailable,
    UncertainEffect,
)
from refold.ids import idempotency_key, uuid7
from refold.plain import fit
from refold.resume import Approval, Call, Change, Child, Note, Resume, Workbench
from refold.vocabulary import configured

__all__ = [
    "Approval",
    "AsyncRefold",
    "AsyncRun",
    "Call",
    "Change",
    "Child",
    "Conflict",
    "NewerCheckpoint",
    "NoCheckpoint",
    "NotFound",
    "Note",
    "NoteConflict",
    "Policy",
    "Refold",
    "RefoldError",
    "Refused",
    "Resume",
    "Run",
    "Unavailable",
    "UncertainEffect",
    "Wait",
    "Workbench",
    "configured",
    "fit",
    "idempotency_key",
    "uuid7",
]
