"""What an error of Redis means: it passes, a person must act, or it is a mistake of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from events.errors import Fenced, SetupError, Transient

_PASSES = (AskError, ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
"""The first and the last of them tell that a slot of a cluster is on its way to another node."""
_PASSING_CODES = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
"""Error codes that have no class: a script runs, the disk is full, replicas are missing, a blocked read was ended."""
_WRONG_TYPE = "WRONGTYPE"
_CLOSED = "the handler is closed"
"""How uvloop ends its words on a connection that the server closed before anything was written: as a RuntimeError."""


@contextmanager
def redis_errors() -> Iterator[None]:
    """Raise what passes as Transient and what a person must change as SetupError; leave mistakes of ours alone.

    A key of the log that somebody else overwrote is Fenced: recovery puts it out of the way.
    """
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise SetupError(f"Redis refuses: {error}; check the user and password in REDIS_URL") from error
    except MaxConnectionsError as error:
        raise Transient("all connections of this process to Redis are in use: send less at once") from error
    except (ConnectionError, TimeoutError, RedisClusterException, OSError) as error:
        raise Transient(f"Redis cannot be reached: {error}") from error
    except RuntimeError as error:
        if not str(error).endswith(_CLOSED):
            raise
        raise Transient(f"Redis closed a connection: {error}") from error
    except ResponseError as error:
        if str(error).startswith(_WRONG_TYPE):
            raise Fenced(f"a key of the log holds something else: {error}") from error
        if isinstance(error, _PASSES) or str(error).startswith(_PASSING_CODES):
            raise Transient(f"Redis fails for now: {type(error).__name__} {error}") from error
        raise
