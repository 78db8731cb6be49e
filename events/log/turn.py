"""Whose turn it is to open a partition: one process at a time, so that many do not undo each other's work.

A courtesy, not a lock: a turn ends by itself when its holder is gone, and Redis may forget it. Epochs keep it safe.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from events.errors import Transient
from events.log.client import AnyRedis, ask
from events.log.layout import keys_of

TURN_MS = 3_000
"""How long a turn lasts unless it is prolonged: so long others wait for a holder that was killed."""


class Turn:
    """One process's turn at a partition. ``take`` it, ``keep`` it while at work, ``give_back`` in the end."""

    def __init__(self, redis: AnyRedis, partition: int) -> None:
        self._redis = redis
        self._key = keys_of(partition).turn
        self._token = uuid4().hex

    async def take(self) -> bool:
        """False when it is another's turn."""
        try:
            taken = await ask(
                self._redis, self._key, lambda node: node.set(self._key, self._token, nx=True, px=TURN_MS)
            )
        except Transient:
            return True  # at its memory limit Redis keeps no turns, but can be opened; whatever else it is, that shows
        return bool(taken)

    async def keep(self) -> None:
        """Say that the work goes on. Raises Transient."""
        await ask(self._redis, self._key, lambda node: node.pexpire(self._key, TURN_MS))

    async def give_back(self) -> None:
        """Let the next one begin."""
        with suppress(Transient):
            holder = await ask(self._redis, self._key, lambda node: node.get(self._key))
            if holder == self._token.encode():
                await ask(self._redis, self._key, lambda node: node.unlink(self._key))
