"""The calibrator: looks at beliefs again on a schedule, and publishes what it found as ``belief.reviewed`` (DESIGN 6).

One process calibrates, by a lease; others stand by. At each slot of the schedule, and at the start for the slot that
was missed, it reads the beliefs of all scopes *as of the slot*. What is found depends on the slot and the evidence up
to it alone, but for a model's answer, and the id of a review follows from belief and slot: of two that look, one result
stays, and what was reviewed once is not asked again. A model looks where one is named (``REFOLD_CALIBRATE_MODEL``);
where it cannot be asked, or its org has spent what it may, the evidence decides alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection

from events.archive.reader import Archive
from events.clock import now_ms
from events.database import Database
from events.errors import Fenced, RefoldError, Transient
from events.ids import named_id
from events.keys import members_of, partition_of
from projections.engine import ownership
from projections.queries.beliefs import belief_documents, beliefs_of
from projections.queries.confidence import BeliefRules
from projections.queries.reviews import scopes_with_beliefs
from services.calibrating.asking import by_model
from services.calibrating.review import Review, by_evidence, is_due
from services.logs import brief
from services.models.client import Models
from services.models.failure import ModelFailed
from services.reactors.partition import Outlet
from services.schedule import Schedule

NAME = "calibrator"
PAGE = 200
MOST_ASKED = 200
"""Beliefs of one org that a model is asked about at one slot; the evidence decides on the others."""
LOOK_S = 30.0
"""How often the clock is looked at, at most."""

Read = Callable[[Callable[[Connection], Any]], Awaitable[Any]]
"""Work on one snapshot of the beliefs. Raises Transient while they cannot be read."""

_log = logging.getLogger("refold.calibrator")


def utc_now() -> datetime:
    """This moment, to the millisecond."""
    return datetime.fromtimestamp(now_ms() / 1000, UTC)


@dataclass
class Calibration:
    """Looks at all beliefs as of one moment. ``model`` empty: by evidence alone. ``org`` empty: of every org."""

    read: Read
    archive: Archive
    outlet: Outlet
    partitions: int
    rules: BeliefRules
    models: Models
    model: str = ""
    org: str = ""

    async def review(self, slot: datetime) -> dict[str, int]:
        """How many beliefs were found to hold, doubtful or untouched. Raises Transient while beliefs cannot be read."""
        verdicts: dict[str, int] = {}
        asked: dict[str, int] = {}
        async for org, scope in self._scopes():
            due = await self._due(org, scope, slot)
            reviews = await asyncio.gather(*(self._look(org, document, slot, asked) for document in due))
            for review in reviews:
                verdicts[review.verdict] = verdicts.get(review.verdict, 0) + 1
            if due:
                found = zip(due, reviews, strict=True)
                await self.outlet.append([_raw(org, scope, document, slot, review) for document, review in found])
        return verdicts

    async def _scopes(self) -> AsyncIterator[tuple[str, str]]:
        after = (self.org, "")
        while page := await self.read(partial(scopes_with_beliefs, after=after, limit=PAGE)):
            for after in page:
                if self.org and after[0] != self.org:
                    return
                yield after

    async def _due(self, org: str, scope: str, slot: datetime) -> list[dict[str, Any]]:
        """The beliefs of a scope that are to be looked at and were not yet, with their evidence."""

        def work(conn: Connection) -> list[dict[str, Any]]:
            found = beliefs_of(conn, org, scope, now=slot, rules=self.rules)
            due = [belief["belief"] for belief in found if is_due(belief, scope, slot, self.rules)]
            return belief_documents(conn, org, scope, due, now=slot, rules=self.rules)

        documents = {_id(org, scope, document["belief"], slot): document for document in await self.read(work)}
        partition = partition_of(org, scope, self.partitions)
        done = await self.archive.ids(partition, [(org, scope, each) for each in documents])
        return [document for each, document in documents.items() if (org, scope, each) not in done]

    async def _look(self, org: str, document: dict[str, Any], slot: datetime, asked: dict[str, int]) -> Review:
        if self.model and asked.get(org, 0) < MOST_ASKED:
            asked[org] = asked.get(org, 0) + 1
            try:
                return await by_model(self.models, org, self.model, document, slot)
            except ModelFailed as failure:
                _log.warning("no review of a belief by a model: %s", brief(failure))
        return by_evidence(document, slot)


@dataclass
class Calibrator:
    """Calibrates at every slot of the schedule, or stands by. ``owner`` names this life of the process."""

    db: Database
    calibration: Calibration
    schedule: Schedule
    owner: str
    lease_s: float = 10.0
    _done: datetime | None = None
    _told: datetime | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Calibrate until ``stopping``; raises when the store cannot be used."""
        try:
            while not stopping.is_set():
                if await self._hold():
                    await self._calibrate(self.schedule.latest(utc_now()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), min(LOOK_S, self.lease_s / 3))
        finally:
            await self.db.write(lambda conn: ownership.release(conn, NAME, 0, self.owner))

    async def _calibrate(self, slot: datetime) -> None:
        if self._done is not None and slot <= self._done:
            return
        holding = asyncio.create_task(self._keep())
        reviewing = asyncio.create_task(self.calibration.review(slot))
        try:
            await asyncio.wait((holding, reviewing), return_when=asyncio.FIRST_COMPLETED)
            if not reviewing.done():
                raise Fenced("the calibrator's lease is somebody else's")
            verdicts = reviewing.result()
        except (Fenced, Transient) as error:
            if self._told != slot:
                self._told = slot
                _log.info("beliefs as of %s are looked at later: %s", slot.isoformat(), brief(error))
            return
        except RefoldError as error:
            _log.warning("beliefs as of %s cannot be looked at: %s", slot.isoformat(), brief(error))
            verdicts = {}
        finally:
            for task in (holding, reviewing):
                task.cancel()
            await asyncio.gather(holding, reviewing, return_exceptions=True)
        self._done = slot
        if verdicts:
            _log.info("beliefs as of %s: %s", slot.isoformat(), verdicts)

    async def _keep(self) -> None:
        """Hold the lease while beliefs are looked at; ends when it is lost."""
        never = asyncio.Event()
        while await self._hold():
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), self.lease_s / 3)

    async def _hold(self) -> bool:
        return await self.db.write(lambda conn: ownership.acquire(conn, NAME, 0, self.owner, self.lease_s))


def _id(org: str, scope: str, belief: str, slot: datetime) -> str:
    return named_id("\x1f".join((NAME, org, scope, belief, slot.isoformat())), slot)


def _raw(org: str, scope: str, document: Mapping[str, Any], slot: datetime, review: Review) -> dict[str, Any]:
    data = {
        "belief": document["belief"],
        "slot": slot.isoformat(timespec="seconds"),
        "verdict": review.verdict,
        "confidence": document["confidence"],
        "by": review.by,
        "detail": review.detail,
        "because": list(review.because),
        "scope": scope.partition("/")[0],
    }
    if review.by != "evidence":
        data |= {name: getattr(review, name) for name in ("tokens_in", "tokens_out", "latency_ms")}
    return {
        "id": _id(org, scope, document["belief"], slot),
        "type": "belief.reviewed",
        "source": f"refold/{NAME}",
        "time": review.time.isoformat(timespec="milliseconds"),
        "org": org,
        "data": data,
        **members_of(scope),
    }
