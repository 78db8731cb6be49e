"""The reactors as a service: the reactor loop, woken by a FastStream subscription, with the one door as its outlet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from events.archive.queries import Archived
from events.archive.refusals import keep_refusals, refusal_of
from events.clock import now_ms
from events.database import Database
from events.log.client import AnyRedis
from events.publisher import Publisher
from services.apps.wakeups import run_awake
from services.reactors.loop import ReactorLoop

DONE = frozenset(("stored", "duplicate", "conflict"))
"""Outcomes after which a derived event is there: an id that exists means already done."""

_log = logging.getLogger("refold.reactors")


@dataclass(frozen=True)
class DoorOutlet:
    """What reactors derive goes through the door like everything else; failures go to the refused events."""

    publisher: Publisher
    db: Database

    async def append(self, raws: Sequence[dict[str, Any]]) -> None:
        """As ``Outlet.append``. What the door refuses is kept there with its reason; trying again would not help."""
        for outcome in await self.publisher.publish(list(raws), ack="durable", source="reactors"):
            # an answer to what was erased meanwhile is erased, too: as it should be
            if outcome.status not in DONE and outcome.code != "erased":
                _log.error("a derived event was %s (%s): see `refold refused`", outcome.status, outcome.code)

    async def give_up(self, reactor: str, source: Archived, error: Exception) -> None:
        """As ``Outlet.give_up``: listed among the refused events, under the reactor's name."""
        event = source.event()
        refusal = refusal_of(
            {name: getattr(event, name) for name in ("id", "type", "agent", "user", "session", "task", "run")},
            org=event.org, source=f"reactor/{reactor}", code="reaction_failed", field="",
            reason=f"{type(error).__name__}: {error}", received_ms=now_ms(),
        )  # fmt: skip
        await self.db.write(lambda conn: keep_refusals(conn, [refusal]))


async def run_reactors(loop: ReactorLoop, redis: AnyRedis, redis_url: str, stopping: asyncio.Event) -> None:
    """React until ``stopping``."""
    await run_awake(redis, redis_url, loop.wake, "reactors", loop.run, stopping)
