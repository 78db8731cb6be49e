"""Rebuilds that are interrupted anywhere, continued with other sizes, overtaken by events: still the log's rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.database import Stores
from events.event import Event
from projections import generations
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.generations import Generation
from projections.projection import Projection
from projections.rebuilding.rebuild import rebuild, rollback
from projections.registry import PROJECTIONS
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.contracts.naive import naive_fold
from tests.contracts.owners import dump_of, whole_log
from tests.contracts.streams import Made, events_of, streams


class Interrupted(Exception):
    """What ends the builder: nothing that it expects."""


class Story:
    """One read model, events that still come, and a builder with bad luck."""

    def __init__(self, lab: Lab, projection: Projection, events: list[Event], dice: random.Random) -> None:
        self.lab, self.projection, self._waiting, self._dice = lab, projection, events, dice
        ensure_first_generation(projection, lab.stores, lab.log, "test")

    def arrive(self, count: int) -> None:
        """Some events arrive, and a projector folds a part of what there is into the active generation."""
        self.lab.archive(*self._waiting[:count])
        del self._waiting[:count]
        store = GenerationStore(self.projection, self.lab.stores.generation(self.active().name))
        source = ArchiveSource(self.lab.log)
        for partition in range(PARTITIONS):
            batch = self._dice.randint(1, 20)
            folder = PartitionFolder.take_over(store, source, partition, "live", batch=batch)
            folder.step()
            folder.hand_over()
        store.db.close()

    def rebuild(self) -> Generation:
        """Rebuild, again and again until nothing interrupts it; each time with other batches."""
        while True:
            moment = self._dice.choice((1, 2, 3, 5, 10_000))
            try:
                return rebuild(
                    self.projection, self.lab.stores, self.lab.log,
                    batch=self._dice.randint(1, 20), cancel=self._bad_luck(moment), allow_dead_letters=True,
                )  # fmt: skip
            except Interrupted:
                assert self.active().state == "active", "an interrupted rebuild took the active generation with it"

    def active(self) -> Generation:
        found = self.lab.log.read_now(partial(generations.active, projection=self.projection.name))
        assert found is not None
        return found

    def check(self) -> None:
        """What is read is what the plainest fold makes of the log, as far as it was folded."""
        db = self.lab.stores.generation(self.active().name)
        store = GenerationStore(self.projection, db)
        for partition in range(PARTITIONS):
            folder = PartitionFolder.take_over(store, ArchiveSource(self.lab.log), partition, "check")
            while folder.step().read:
                pass
            folder.hand_over()
        assert dump_of(db, self.projection) == naive_fold(self.projection, whole_log(self.lab.log))
        db.close()

    def _bad_luck(self, moment: int) -> Callable[[], bool]:
        """Asked after each step of the builder: events arrive now and then; at one moment it ends."""
        asked = 0

        def cancel() -> bool:
            nonlocal asked
            asked += 1
            if asked == moment:
                raise Interrupted
            if self._dice.random() < 0.2:
                self._late()
            return False

        return cancel

    def _late(self) -> None:
        count = self._dice.randint(1, 5)
        self.lab.archive(*self._waiting[:count])
        del self._waiting[:count]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams(), name=st.sampled_from(sorted(PROJECTIONS)), seed=st.integers(0, 2**32))
def test_interrupted_rebuilds_make_the_rows_of_the_log(
    tmp_path_factory: Any, stream: list[Made], name: str, seed: int
) -> None:
    """Rebuilds and roll-backs between live folds; parked keys and discards among the events."""
    dice = random.Random(seed)
    lab = Lab(Stores(f"sqlite:///{tmp_path_factory.mktemp('rebuilds')}"))
    story = Story(lab, PROJECTIONS[name], events_of(stream, [name]), dice)
    story.arrive(30)
    first = story.active()
    assert story.rebuild().number > first.number
    story.arrive(10)
    story.check()
    if dice.random() < 0.5:
        assert rollback(name, lab.stores, lab.log, PROJECTIONS[name]).number == first.number
        story.arrive(10)
        story.check()
    story.rebuild()
    story.arrive(1000)
    story.check()
    lab.log.close()
