"""What agents import: publish a run to Refold, and go on with it after a crash.

>>> from refold import Refold
>>> client = Refold(agent="coder")  # doctest: +SKIP
"""

from refold.async_client import AsyncRefold, AsyncRun
from refold.client import Refold, Run
from refold.delivery import Policy
from refold.envelope import Wait
from refold.errors import Conflict, NoCheckpoint, NotFound, RefoldError, Refused, Unavailable, UncertainEffect
from refold.ids import idempotency_key, uuid7
from refold.plain import fit
from refold.resume import Call, Resume

__all__ = [
    "AsyncRefold",
    "AsyncRun",
    "Call",
    "Conflict",
    "NoCheckpoint",
    "NotFound",
    "Policy",
    "Refold",
    "RefoldError",
    "Refused",
    "Resume",
    "Run",
    "Unavailable",
    "UncertainEffect",
    "Wait",
    "fit",
    "idempotency_key",
    "uuid7",
]
