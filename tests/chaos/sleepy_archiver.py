"""An archiver that falls asleep (SIGSTOP) the first time it archives: before, within or after its transaction.

``python -m tests.chaos.sleepy_archiver MOMENT REDIS_URL STORES_URL PARTITIONS``; SIGTERM stops it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TypeVar

from sqlalchemy import Connection

from events import database_engines as engines
from events.archive.archiver import Archiver
from events.database import Database, Stores, Work
from events.log.client import connect

T = TypeVar("T")
SLEEP_HOLDS_LOCKS_S = 2
"""After so long PostgreSQL ends the transaction of one who sleeps within it; else the test takes longer."""


class SleepyDatabase(Database):
    """A log store whose first transaction is interrupted."""

    moment = ""

    async def write(self, work: Work[T]) -> T:
        moment, self.moment = self.moment, ""
        if moment == "read":
            sleep()

        def slow(conn: Connection) -> T:
            result = work(conn)
            if moment == "within":
                sleep()
            return result

        result = await super().write(slow)
        if moment == "committed":
            sleep()
        return result


def sleep() -> None:
    """Until somebody wakes this process."""
    os.kill(os.getpid(), signal.SIGSTOP)


async def archive(moment: str, redis_url: str, stores_url: str, partitions: int) -> None:
    """Archive until SIGTERM."""
    engines.STALLED_TRANSACTION_S = SLEEP_HOLDS_LOCKS_S
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    like = Stores(stores_url).log()
    db = SleepyDatabase(like.url, schema=like.schema)
    like.close()
    db.moment = moment
    redis = await connect(redis_url)
    try:
        await Archiver(redis, db, partitions).run(stopping)
    finally:
        await redis.aclose()
        db.close()


if __name__ == "__main__":
    _, named, redis_at, stores_at, count = sys.argv
    asyncio.run(archive(named, redis_at, stores_at, int(count)))
