"""Waiting until the archive has a position: woken by the archiver, with a look at SQL where no wake-up comes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from events.archive import store
from events.archive.queries import read_watermarks
from events.database import Database
from events.event import START, Position
from events.log.client import AnyRedis
from events.log.layout import ARCHIVED_CHANNEL
from events.log.listener import Listener

POLL_S = 0.25
"""How often SQL is looked at while somebody waits, should wake-ups not come through."""

logger = logging.getLogger(__name__)


class Watermarks:
    """The archive's watermarks as this process knows them; one subscription for all who wait.

    A watermark seen here was committed. The one in SQL may be further by now.
    """

    def __init__(self, redis: AnyRedis, db: Database) -> None:
        self._db = db
        self._seen: dict[int, Position] = {}
        self._log_id = b""
        self._advanced = asyncio.Event()
        self._listener = Listener(redis, ARCHIVED_CHANNEL, self._hear, self._learn_log_id)

    def start(self) -> None:
        """Begin to listen, on a connection of its own. Call it once, inside the event loop."""
        self._listener.start()

    async def stop(self) -> None:
        """End listening; whoever waits goes on with looks at SQL."""
        await self._listener.stop()

    def seen(self, partition: int) -> Position:
        """The furthest watermark known here."""
        return self._seen.get(partition, START)

    async def wait_for(self, positions: Mapping[int, Position], timeout_s: float) -> bool:
        """Wait until every partition's watermark has reached its position, in this epoch or a later one.

        False when ``timeout_s`` passed first. Raises Transient when SQL cannot be asked.
        """
        deadline = time.monotonic() + timeout_s
        while not self._reached(positions):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            advanced = self._advanced
            try:
                await asyncio.wait_for(advanced.wait(), min(left, POLL_S))
            except TimeoutError:
                await self.refresh()
        return True

    async def refresh(self) -> None:
        """Look at SQL."""
        for partition, position in (await self._db.read(read_watermarks)).items():
            self._note(partition, position)

    def _reached(self, positions: Mapping[int, Position]) -> bool:
        return all(self.seen(partition) >= position for partition, position in positions.items())

    def _note(self, partition: int, position: Position) -> None:
        if position > self.seen(partition):
            self._seen[partition] = position
            # whoever waits holds the old event; who comes later waits for the next
            self._advanced.set()
            self._advanced = asyncio.Event()

    async def _learn_log_id(self) -> None:
        self._log_id = self._log_id or (await self._db.read(store.log_id)).encode()

    def _hear(self, data: bytes) -> None:
        try:
            partition, position, log_id = data.split(b" ")
            if log_id == self._log_id:
                self._note(int(partition), Position.parse(position))
        except ValueError:
            logger.warning("a message on %s is none of ours: %.80r", ARCHIVED_CHANNEL, data)
