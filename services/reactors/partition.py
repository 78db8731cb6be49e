"""One reactor over one partition: reads on, keeps reactions in flight, and moves its checkpoint behind them.

Slow work runs side by side; the checkpoint is the position before the lowest unfinished one. Whatever is killed in
between is done again, and the derived ids make sure that doing it again changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from events.archive.erasing import ERASED
from events.archive.reader import Archive, Archived
from events.database import Database
from events.errors import NewerVersion, Transient
from events.event import Position
from projections.engine.source import DenseReader
from services.logs import brief
from services.reactors.checkpoints import Claim, advance, take_over
from services.reactors.reactor import Later, Outside, Reaction, Reactor, read_recorded

READ = 1_000
MAX_IN_FLIGHT = 10_000
"""Reactions begun and not finished, waiting ones included, before reading pauses."""
COMMIT_S = 0.25
"""How often a moving checkpoint is written; it only decides how much is done again after a kill."""
POLL_S = 2.0
"""How often the archive is looked at when no wake-up comes."""
FRESH_S = 1.0
"""How long a source that was read is taken to be as it was."""
LEFT_S = 30.0
"""How often it is asked whether what was left to newer code is erased."""
PACE_S = 0.05
"""Pause after a wake-up: under steady traffic one read takes in many events instead of one."""

_log = logging.getLogger("refold.reactors")


class Outlet(Protocol):
    """Where derived events go, and where a reaction that cannot work is made visible."""

    async def append(self, raws: Sequence[dict[str, Any]]) -> None:
        """Return when all are durable (an id that exists counts). Raises Transient."""
        ...

    async def give_up(self, reactor: str, source: Archived, error: Exception) -> None:
        """Keep a source event that the reactor failed on, with the reason, where people look."""
        ...


@dataclass
class _Flight:
    before: Position
    task: asyncio.Task[None]


@dataclass
class PartitionRun:
    """Drives ``reactor`` over ``partition`` until ``stopping``. ``wake`` is set whenever the archive has advanced."""

    reactor: Reactor
    partition: int
    db: Database
    archive: Archive
    reader: DenseReader
    outlet: Outlet
    slots: asyncio.Semaphore
    wake: asyncio.Event
    outside: Outside = field(default_factory=Outside)
    _flights: deque[_Flight] = field(default_factory=deque)
    _told: set[str] = field(default_factory=set)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping`` or until somebody else takes the partition over (then Fenced is raised)."""
        claim = await self.db.write(lambda conn: take_over(conn, self.reactor.key, self.partition))
        read_to, committed_at = claim.position, monotonic()
        try:
            while not stopping.is_set():
                self.wake.clear()
                batch = await self._read(read_to)
                for archived in batch:
                    self._begin(archived, before=read_to)
                    read_to = archived.position
                if self._done_to(read_to) != claim.position and monotonic() - committed_at >= COMMIT_S:
                    claim, committed_at = await self._commit(claim, read_to), monotonic()
                if len(batch) < READ:
                    unwritten = self._flights or read_to != claim.position
                    await self._pause(stopping, COMMIT_S if unwritten else POLL_S)
        finally:
            await self._stop(claim, read_to)

    async def _read(self, after: Position) -> Sequence[Archived]:
        if len(self._flights) >= MAX_IN_FLIGHT:
            return []
        return await asyncio.to_thread(self.reader.read, after, READ)

    def _begin(self, archived: Archived, before: Position) -> None:
        if archived.type not in self.reactor.handles or archived.verdict != "effective":
            return
        self._flights.append(_Flight(before, asyncio.create_task(self._react(archived))))

    async def _react(self, archived: Archived) -> None:
        since_s = monotonic()
        try:
            recorded = read_recorded(archived)
            if recorded is None:
                return
            reaction = Reaction(self.reactor.name, archived, recorded, self.archive, self.outside)
            answer = await self._attempt(reaction, since_s)
            while answer is not None:
                await asyncio.sleep(answer.seconds)
                answer = await self._attempt(reaction, since_s)
        except NewerVersion as newer:
            await self._leave_to_newer_code(newer, archived)
        except Exception as error:  # noqa: BLE001  a reaction that cannot work is kept visibly, the others go on
            _log.error("%s failed on a %s: %s", self.reactor.name, archived.type, brief(error))
            failure = error
            await _persistently(lambda: self.outlet.give_up(self.reactor.name, archived, failure))

    async def _leave_to_newer_code(self, newer: NewerVersion, archived: Archived) -> None:
        """Stay in flight until this owner stops, so that the checkpoint stays before what its successor can read.

        Nobody has to read what is erased meanwhile.
        """
        if str(newer) not in self._told:
            self._told.add(str(newer))
            _log.warning("%s leaves partition %d to newer code: %s", self.reactor.name, self.partition, newer)
        while not await _persistently(lambda: self._is_erased(archived)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LEFT_S)

    async def _attempt(self, reaction: Reaction, since_s: float) -> Later | None:
        """One try; nothing more is done about a source that was erased since it was read, at ``since_s``."""
        async with self.slots:
            if monotonic() - since_s > FRESH_S and await _persistently(lambda: self._is_erased(reaction.source)):
                return None
            answer = await _persistently(lambda: self.reactor.react(reaction))
        # without a place: what is outside is done, and the archive has room for many
        later = answer if isinstance(answer, Later) else None
        raws = later.first if later else answer
        if raws:
            await _persistently(lambda: self.outlet.append(raws))
        return later

    async def _is_erased(self, source: Archived) -> bool:
        """What it led to is erased as it comes, so that it would be tried for ever, and a model told what is gone."""
        found = await self.archive.verdicts(source.partition, [source.position])
        return found[source.position].verdict == ERASED

    def _done_to(self, read_to: Position) -> Position:
        """The position before the lowest unfinished reaction."""
        while self._flights and self._flights[0].task.done() and not self._flights[0].task.cancelled():
            self._flights.popleft().task.result()
        return self._flights[0].before if self._flights else read_to

    async def _commit(self, claim: Claim, read_to: Position) -> Claim:
        done_to = self._done_to(read_to)
        if done_to == claim.position:
            return claim
        return await self.db.write(lambda conn: advance(conn, claim, done_to))

    async def _pause(self, stopping: asyncio.Event, seconds: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self.wake, stopping)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            await asyncio.wait(waits[1:], timeout=PACE_S)
        for wait in waits:
            wait.cancel()

    async def _stop(self, claim: Claim, read_to: Position) -> None:
        """Leave what is in flight to the next owner, and write down what is finished."""
        for flight in self._flights:
            flight.task.cancel()
        await asyncio.gather(*(flight.task for flight in self._flights), return_exceptions=True)
        with suppress(Transient):
            await self._commit(claim, read_to)


async def _persistently(work: Callable[[], Awaitable[Any]]) -> Any:
    """Try until what passes has passed: the wait grows to half a minute."""

    async def once() -> Any:
        return await work()

    passing = retry_if_exception_type(Transient)
    return await AsyncRetrying(retry=passing, wait=wait_random_exponential(multiplier=0.1, max=30), reraise=True)(once)
