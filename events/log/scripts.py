"""Running the log's scripts, and what the errors of Redis mean.

A script is addressed by its digest, so that an old process can never replace a newer one's; whoever finds it missing
sends it along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MaxConnectionsError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from events.errors import Fenced, SetupError, Transient

_PASSES = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSING_CODES = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
"""Error codes that have no class: a script runs, the disk is full, replicas are missing, a blocked read was ended."""
_WRONG_TYPE = "WRONGTYPE"


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
    except (ConnectionError, TimeoutError, OSError) as error:
        raise Transient(f"Redis cannot be reached: {error}") from error
    except ResponseError as error:
        if str(error).startswith(_WRONG_TYPE):
            raise Fenced(f"a key of the log holds something else: {error}") from error
        if isinstance(error, _PASSES) or str(error).startswith(_PASSING_CODES):
            raise Transient(f"Redis fails for now: {error}") from error
        raise


class Script:
    """One script of this package, with the shared part in front of it."""

    def __init__(self, name: str) -> None:
        here = files(__package__)
        self._text = here.joinpath("common.lua").read_text() + here.joinpath(f"{name}.lua").read_text()
        self._digest = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, redis: Redis, keys: tuple[str, ...], *arguments: bytes | str | int) -> Any:
        """Run it where the keys are. Raises Transient, Fenced, SetupError."""
        with redis_errors():
            try:
                return await redis.evalsha(self._digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return await redis.eval(self._text, len(keys), *keys, *arguments)
