"""The indexer's loop: finds cards that changed, has vectors made, switches to another model once that has them all.

While a new model is being made ready, the one that searches use is still served, so that what is new is found.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from events.database import Database
from events.errors import Refused, SetupError, Transient
from events.event import Position
from projections.engine import ownership
from projections.read_models import ReadModels
from projections.retrieval import models
from projections.retrieval.models import Model
from services.embedding.choice import Choice
from services.embedding.process import ModelProcess
from services.indexer.follower import CARDS, Asked, Follower
from services.indexer.sweep import SWEEP_S, Sweeper, hands

LEASE = "indexer"
POLL_S = 0.3
"""How often a look is taken at how far cards are folded: two small reads."""
BATCH = 64
"""Texts that are embedded and written together: some tenths of a second with the default model."""
NICE = 10
"""How much embedding in the background gives way to everything else."""
RETRY_S = 60.0
"""How long a model that cannot be loaded, or the one before it that cannot be asked, is not tried again."""

_log = logging.getLogger("refold.indexer")


def in_background(choice: Choice) -> Asked:
    """A model in a process of its own that gives way to others."""
    return ModelProcess(choice, nice=NICE)


class Indexer:
    """Runs until it is told to stop. Any number may run: one is at work at a time, others stand by.

    ``owner`` names this life of the process in the lease. ``batch`` texts are embedded and written together.
    ``new_model`` begins to ask a model; ``sweep_s`` is how long after a change of hands a sweep follows.
    """

    def __init__(
        self, choice: Choice, read_models: ReadModels, db: Database, owner: str, *, lease_s: float,
        batch: int = BATCH, new_model: Callable[[Choice], Asked] = in_background,
        sweep_s: float = SWEEP_S,
    ) -> None:  # fmt: skip
        self._choice = choice
        self._read_models = read_models
        self._db = db
        self._owner = owner
        self._lease_s = lease_s
        self._batch = batch
        self._followers: dict[str, Follower] = {}
        self._new_model = new_model
        self._models: list[Asked] = []
        self._sweeper = Sweeper(read_models, db, sweep_s)
        self._leads = False
        self._not_before_s = 0.0
        self._other_not_before_s = 0.0
        self._in_vain = -1

    async def run(self, stopping: asyncio.Event) -> None:
        """Index until ``stopping``. Raises what it cannot go on with, for the supervisor to show and to begin anew."""
        if self._choice.off:
            await stopping.wait()
            return
        await _pause(stopping, self._not_before_s - time.monotonic())
        tasks = {asyncio.create_task(stopping.wait()), asyncio.create_task(self._renew())}
        looking = asyncio.create_task(self._look(), name="index")
        try:
            await asyncio.wait({looking, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                await looking
        except SetupError:
            self._not_before_s = time.monotonic() + RETRY_S
            raise
        finally:
            # what is half done is done again by whoever comes next
            for task in (looking, *tasks):
                task.cancel()
            await asyncio.gather(looking, *tasks, return_exceptions=True)
            await self._end()

    async def _look(self) -> None:
        name = await asyncio.to_thread(lambda: self._choice.name)
        while True:
            if not await self._step(name):
                await asyncio.sleep(POLL_S)

    async def _end(self) -> None:
        for model in self._models:
            await model.close()
        self._models.clear()
        self._followers.clear()
        if self._leads:
            self._leads = False
            with suppress(Transient):  # then it runs out by itself
                await self._db.write(partial(ownership.release, name=LEASE, partition=0, owner=self._owner))

    async def _step(self, name: str) -> bool:
        """Take a look, and do a piece of what is found to do. False when there is nothing."""
        try:
            read = await self._read_models.read(CARDS, hands)
        except (Transient, Refused):
            # no generation yet, or none that this code can read: a projector sees to it; or no cards are kept here
            return False
        own = self._follower(name, self._choice)
        active = await self._db.read(models.active)
        other = None if active is None or active.name == name else active
        if other is not None and await self._serve_other(other, read.generation, read.positions):
            return True
        behind = await own.behind(read.generation, read.positions)
        if behind:
            return await self._lead() and await self._advance(own, behind)
        if other is not None:
            return await self._lead() and await self._switch(own)
        if self._sweeper.is_due((read.generation, read.value)):
            return await self._lead() and await self._sweeper.sweep(own)
        return False

    async def _serve_other(self, model: Model, generation: str, positions: Mapping[int, Position]) -> bool:
        """Go on with the model that searches use until another takes its place, as well as that can be done."""
        follower = self._follower(model.name, Choice(**model.source, form=self._choice.form))
        behind = await follower.behind(generation, positions)
        if not behind or follower.given_up or time.monotonic() < self._other_not_before_s or not await self._lead():
            return False
        try:
            return await self._advance(follower, behind)
        except Transient as error:  # an endpoint that is gone must not hold up the model that takes its place
            _log.warning("%s; what is new is found by its words meanwhile", error)
            self._other_not_before_s = time.monotonic() + RETRY_S
            return False
        except SetupError as error:
            _log.warning("%s; what is new is found by its words until %s is ready", error, self._choice.model)
            follower.given_up = True
            return False

    async def _advance(self, follower: Follower, behind: list[int]) -> bool:
        for partition in behind:
            await follower.advance(partition)
        return True

    async def _switch(self, own: Follower) -> bool:
        """Let searches use the model from now on, if there is anything that it could find."""
        if own.embedded == self._in_vain or not await self._db.read(partial(models.is_useful, name=own.name)):
            if own.embedded not in (0, self._in_vain):
                _log.warning("%s gave no vector of %d texts: searches go on without it", own.name, own.embedded)
            self._in_vain = own.embedded
            return False
        done = await self._db.write(partial(models.activate, name=own.name))
        if done:
            _log.info("searches use the embedding model %s from now on", own.name)
        return done

    def _follower(self, name: str, choice: Choice) -> Follower:
        if name not in self._followers:
            model = self._new_model(choice)
            self._models.append(model)
            self._followers[name] = Follower(name, choice.source, model, self._read_models, self._db, self._batch)
        return self._followers[name]

    async def _lead(self) -> bool:
        """Whether this is the one that works; it becomes that when nobody else is."""
        if self._leads or await self._db.read(partial(ownership.is_held, name=LEASE)):
            return self._leads
        self._leads = await self._db.write(self._acquire)
        if self._leads:
            for follower in self._followers.values():
                await follower.recall()
        return self._leads

    def _acquire(self, conn: Connection) -> bool:
        return ownership.acquire(conn, LEASE, 0, self._owner, self._lease_s)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 4)
            if self._leads:
                with suppress(Transient):
                    self._leads = await self._db.write(self._acquire)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    if seconds > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)
