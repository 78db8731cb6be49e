"""How fast append is against raw redis-py: pipelined ``XADD *`` of the same entries on the same server, fsync always.

Both sides run in turn, several rounds, and the medians are compared. Our side starts from admitted events, so it
includes turning them into stream fields; the raw side gets its fields ready-made. Run: ``python -m benchmarks.append``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import Redis

from events.archive.schema import metadata
from events.archive.store import log_id, open_log
from events.codec import to_fields
from events.database import Stores
from events.door import admit
from events.event import Event
from events.log.log import Log
from events.log.recovery import open_partition
from services.embedded.redis_server import start_redis

ROUNDS = 5


class NoHistory:
    """Nothing was ever forgotten here, so nobody may ask."""

    def __init__(self, log_id: str) -> None:
        self._log_id = log_id

    async def log_id(self) -> str:
        """The log's identity."""
        return self._log_id

    async def ids(self, partition: int, wanted: Sequence[Any]) -> dict[Any, Any]:
        """No id is known."""
        raise AssertionError("the archive was asked")

    async def tasks(self, wanted: Sequence[Any]) -> dict[Any, Any]:
        """No task is known."""
        raise AssertionError("the archive was asked")

    async def last_seqs(self, wanted: Sequence[Any]) -> dict[Any, Any]:
        """No run is known."""
        raise AssertionError("the archive was asked")


def make_events(count: int, label: str) -> list[Event]:
    """Events of runs of 50, ~350 bytes each with ``seq``, as an agent publishes them."""
    events = []
    for i in range(count):
        run, seq = f"{label}-{i // 50}", i % 50 + 1
        base = {"id": f"{label}-{i:08d}", "run": run, "task": run, "seq": seq, "agent": "coder", "source": "bench"}
        if seq == 1:
            body: dict[str, Any] = {"type": "run.started", "data": {"goal": "measure"}}
        else:
            result = {"call_id": f"c{seq}", "name": "read_file", "result": "x" * 120}
            body = {"type": "tool.returned", "data": result}
        events.append(admit({**base, **body, "time": "2026-01-01T00:00:00Z"}))
    return events


async def ours(log: Log, events: list[Event], batch: int) -> float:
    """Events a second through append."""
    started = time.perf_counter()
    for start in range(0, len(events), batch):
        outcomes = await log.append(events[start : start + batch])
        assert all(o.status == "stored" for o in outcomes)
    return len(events) / (time.perf_counter() - started)


def raw(client: redis.Redis, key: str, fields: list[dict[str, str]], batch: int) -> float:
    """Events a second through pipelined XADD of the synchronous client, the faster one of redis-py."""
    started = time.perf_counter()
    for start in range(0, len(fields), batch):
        pipeline = client.pipeline(transaction=False)
        for entry in fields[start : start + batch]:
            pipeline.xadd(key, entry)  # type: ignore[arg-type]
        pipeline.execute()
    return len(fields) / (time.perf_counter() - started)


async def compare(
    client: Redis, plain: redis.Redis, folder: Path, partitions: int, batch: int, count: int
) -> tuple[float, float]:
    """Median events a second of (ours, raw) over the rounds, each on fresh events."""
    await client.flushall()
    db = Stores(f"sqlite:///{folder}/{partitions}-{batch}").log()
    db.write_now(metadata.create_all)
    db.write_now(lambda conn: open_log(conn, partitions, 0))
    for partition in range(partitions):
        await open_partition(client, db, partition)
    log = Log(client, partitions, NoHistory(db.read_now(log_id)), window=10 * ROUNDS * count)
    rates: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        events = make_events(count, f"r{number}")
        flat = [to_fields(event) for event in events]
        fields = [dict(zip(names[::2], names[1::2], strict=True)) for names in flat]
        theirs = raw(plain, "raw", fields, batch)
        rates.append((await ours(log, events, batch), theirs))
    db.close()
    return statistics.median(rate for rate, _ in rates), statistics.median(rate for _, rate in rates)


async def main() -> None:
    """Print the rates and their ratio for batches of 100 and 500, one partition and eight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="events a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = start_redis(Path(folder) / "redis")
        client, plain = Redis.from_url(server.url), redis.Redis.from_url(server.url)
        try:
            for partitions in (1, 8):
                for batch in (100, 500):
                    mine, theirs = await compare(client, plain, Path(folder), partitions, batch, options.events)
                    print(
                        f"append {batch:3d} a call, {partitions} partition(s): {mine:9,.0f} events/s, "
                        f"raw XADD * {theirs:9,.0f}, ratio {mine / theirs:.2f}"
                    )
        finally:
            await client.aclose()
            plain.close()
            server.stop()


if __name__ == "__main__":
    asyncio.run(main())
