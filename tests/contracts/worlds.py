"""One log, folded by the engine in a process of its own, at another time of day: ``python -m tests.contracts.worlds``.

Prints one digest of all stored rows, as the bytes that they are. The process's time zone, locale and hash seed are its
environment's; ``SECONDS`` shifts its clock, ``SEED`` decides about owners, batches and caches.
"""

from __future__ import annotations

import datetime
import hashlib
import random
import sys
import tempfile
import time
from typing import Any, Self

YEAR_S = 365 * 24 * 3600


def shift_clock(seconds: int) -> None:
    """Let everything that asks for the time in this process get another one. Before anything else is imported."""
    real_time, real_ns, real = time.time, time.time_ns, datetime.datetime

    class Shifted(real):
        __slots__ = ()

        @classmethod
        def now(cls, tz: Any = None) -> Self:
            return cls.fromtimestamp(real_time() + seconds, tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Self:
            return cls.now()

    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_ns() + seconds * 10**9
    datetime.datetime = Shifted  # type: ignore[misc]


def digest(seed: int) -> str:
    """Fold the log, with owners of all kinds; the digest of what is stored."""
    from projections.registry import PROJECTIONS
    from tests.contracts.engine_lab import TOY, Lab, Stores
    from tests.contracts.owners import live_together
    from tests.contracts.streams import TEMPLATES, Made, events_of

    fixed = random.Random(4)
    how = ["plain"] * 30 + ["again", "conflict", "unknown", "newer", "broken", "discard"]
    stream = [
        Made(fixed.choice(how), fixed.randrange(len(TEMPLATES)), fixed.randrange(6), fixed.randrange(10**4), index)
        for index in range(250)
    ]
    projections = [*PROJECTIONS.values(), TOY]
    total = hashlib.blake2b(digest_size=16)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Stores(f"sqlite:///{folder}"))
        events = events_of(stream, [projection.name for projection in projections])
        for owners in live_together(lab, projections, events, random.Random(seed)):
            for table in owners.store.projection.tables:
                query = f'SELECT * FROM "{table.name}"'
                rows = owners.store.db.read_now(lambda conn: conn.exec_driver_sql(query).all())  # noqa: B023
                total.update(repr((table.name, sorted(map(tuple, rows), key=repr))).encode())
            owners.store.db.close()
        lab.log.close()
    return total.hexdigest()


if __name__ == "__main__":
    shift_clock(int(sys.argv[2]))
    print(
        digest(int(sys.argv[1])), datetime.datetime.now(datetime.UTC).year, int(time.time()) // YEAR_S, time.tzname[0]
    )
