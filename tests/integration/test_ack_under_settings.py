"""What an acknowledgement is worth under each setting of Redis' append-only file, when Redis is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from events.archive.schema import metadata
from events.database import Stores
from tests.chaos.test_redis_loses_things import cut_between_commands
from tests.servers import RedisServer, redis_server
from tests.stack import Stack, raw_event, running_stack

COUNT = 40


@pytest.mark.parametrize(
    ("settings", "crash", "fast_survive"),
    [
        ({"appendfsync": "always"}, "process", True),
        ({"appendfsync": "everysec"}, "process", True),
        ({"appendfsync": "no"}, "process", True),
        ({"appendfsync": "everysec"}, "machine", False),
        ({"appendonly": "no"}, "process", False),
    ],
)
def test_what_survives(tmp_path: Path, settings: dict[str, str], crash: str, fast_survive: bool) -> None:
    """Invariant 1: durable events survive whatever Redis does; fast ones as far as its file goes, and none is doubled.

    A machine that crashes is simulated by a file without its last commands, which it had not synced.
    """

    async def scenario(stack: Stack) -> None:
        assert isinstance(stack.server, RedisServer)
        durable = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        fast = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        for name, value in settings.items():
            await stack.redis.config_set(name, value)
        outcomes = await stack.publisher.publish(durable)
        assert {outcome.status for outcome in outcomes} == {"stored"}
        await stack.archive_off()
        outcomes = await stack.publisher.publish(fast, ack="fast")
        assert {outcome.status for outcome in outcomes} == {"accepted"}
        await asyncio.to_thread(restart, stack.server, cut_between_commands if crash == "machine" else None)
        stack.archive_on()
        more = [raw_event(f"r{i % 8}") for i in range(COUNT)]
        await stack.publisher.publish(more)
        effective = stack.ids()
        assert len(effective) == len(set(effective))
        lost = {raw["id"] for raw in (*durable, *fast, *more)} - set(effective)
        assert lost <= {raw["id"] for raw in fast}
        assert bool(lost) != fast_survive
        again = await stack.publisher.publish(fast)
        assert {outcome.status for outcome in again} <= {"stored", "duplicate"}
        assert sorted(stack.ids()) == sorted(raw["id"] for raw in (*durable, *fast, *more))

    asyncio.run(in_stack(tmp_path, scenario))


def restart(server: RedisServer, change: Callable[[Path], None] | None) -> None:
    server.kill()
    if change is not None:
        change(server.directory)
    server.restart()


async def in_stack(folder: Path, scenario: Callable[[Stack], Awaitable[None]]) -> None:
    server, db = redis_server(folder / "redis"), Stores(f"sqlite:///{folder}/stores").log()
    db.write_now(metadata.create_all)
    try:
        async with running_stack(server, db, timeout_s=60) as stack:
            await scenario(stack)
    finally:
        db.close()
        server.stop()
