"""Running the log's scripts.

A script is addressed by its digest, so that an old process can never replace a newer one's; whoever finds it missing
sends it along.
"""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from events.log.client import AnyRedis, ask
from events.log.redis_errors import redis_errors as redis_errors


class Script:
    """One script of this package, with the shared part in front of it."""

    def __init__(self, name: str) -> None:
        here = files(__package__)
        self._text = here.joinpath("common.lua").read_text() + here.joinpath(f"{name}.lua").read_text()
        self._digest = sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, redis: AnyRedis, keys: tuple[str, ...], *arguments: bytes | str | int) -> Any:
        """Run it where the keys are, all of one partition. Raises Transient, Fenced, SetupError."""

        async def evaluate(node: Redis) -> Any:
            try:
                return await node.evalsha(self._digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return await node.eval(self._text, len(keys), *keys, *arguments)

        return await ask(redis, keys[0], evaluate)
