"""Scopes that are kept ready for policies say what a store says now, whatever happened to it; and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from events.archive.store import log_id
from events.database import Database
from events.door import admit
from events.event import Event
from events.keys import partition_of
from events.tokens import write_token
from projections import generations
from projections.beliefs import BELIEFS_PROJECTION
from projections.engine.birth import ensure_first_generation
from projections.engine.checkpoints import raise_owner_epoch
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import rebuild
from services.policies.scopes import FRESH_S, SCOPE, PolicyScopes
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.coroutines import in_loop

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDA = "user/ida"


class Desk:
    """A lab with the read model of beliefs, and the scopes of one process."""

    def __init__(self, lab: Lab, **options: Any) -> None:
        ensure_first_generation(BELIEFS_PROJECTION, lab.stores, lab.log, "test")
        self.lab = lab
        self.models = ReadModels([BELIEFS_PROJECTION], lab.stores, lab.log)
        self.scopes = PolicyScopes(self.models, lab.log, PARTITIONS, **options)
        self._store = GenerationStore(BELIEFS_PROJECTION, self.generation())
        source = ArchiveSource(lab.log)
        # one owner all along, as a projector is: who takes over raises the owner epoch
        self._folders = [PartitionFolder.take_over(self._store, source, p, "t", batch=100) for p in range(PARTITIONS)]

    def generation(self) -> Database:
        active = self.lab.log.read_now(partial(generations.active, projection=BELIEFS_PROJECTION.name))
        assert active is not None
        return self.lab.stores.generation(active.name)

    def happens(self, *events: Event) -> str:
        """Archive and fold; a token of the last event."""
        positions = self.lab.archive(*events)
        for folder in self._folders:
            while folder.step().read:
                pass
        where = partition_of(events[-1].org, events[-1].key, PARTITIONS)
        return write_token([(where, positions[-1])], self.lab.log.read_now(log_id))

    async def told(self, *scopes: str, org: str = "default", at: datetime = NOW, after: str = "") -> list[list[str]]:
        found = await self.scopes.learned(org, scopes or (IDA,), at, after or None)
        assert found.note["reached"]
        return [[one.document["belief"] for one in learned.held] for learned in found.scopes]

    def close(self) -> None:
        self.models.close()
        self._store.db.close()


@pytest.fixture
def desk(lab: Lab) -> Iterator[Desk]:
    desk = Desk(lab)
    yield desk
    desk.close()


def proposed(belief: str, user: str = "ida", org: str = "default") -> Event:
    data = {"belief": belief, "kind": "learning", "statement": f"do {belief}", "confidence": 0.9, "scope": "user"}
    return _event("belief.proposed", f"p-{belief}-{user}-{org}", data, user, org)


def retracted(belief: str, user: str = "ida") -> Event:
    return _event("belief.retracted", f"r-{belief}-{user}", {"belief": belief, "scope": "user"}, user, "default")


def _event(type_: str, id_: str, data: dict[str, Any], user: str, org: str) -> Event:
    raw = {"id": id_, "type": type_, "time": "2026-03-01T10:00:00Z", "user": user, "data": data}
    return admit(raw, org=org)


def neighbour(org: str = "default") -> str:
    """Another user whose scope lies in the partition of Ida's."""
    mine = partition_of("default", IDA, PARTITIONS)
    return next(f"n{n}" for n in range(1_000) if partition_of(org, f"user/n{n}", PARTITIONS) == mine)


@in_loop
async def test_a_scope_is_read_again_when_something_happens_in_it_and_not_before(desk: Desk) -> None:
    assert await desk.told() == [[]]
    token = desk.happens(proposed("b1"))
    assert await desk.told(after=token) == [["b1"]] and desk.scopes.reads == 2
    desk.happens(proposed("b2", user=neighbour()))
    assert await desk.told() == [["b1"]] and await desk.told() == [["b1"]] and desk.scopes.reads == 2
    token = desk.happens(retracted("b1"), proposed("b3"))
    assert await desk.told(after=token) == [["b3"]] and desk.scopes.reads == 3


@in_loop
async def test_users_and_orgs_never_touch(desk: Desk) -> None:
    other = neighbour("elsewhere")
    desk.happens(
        proposed("b1"), proposed("b2", user="bob"), proposed("b3", org="elsewhere"), proposed("b4", user=other)
    )
    for _ in range(2):
        assert await desk.told(IDA, "user/bob", "org") == [["b1"], ["b2"], []]
        assert await desk.told(IDA, "user/bob", org="elsewhere") == [["b3"], []]


@in_loop
async def test_another_generation_is_read_anew(desk: Desk) -> None:
    token = desk.happens(proposed("b1"))
    assert await desk.told() == [["b1"]]
    rebuild(BELIEFS_PROJECTION, desk.lab.stores, desk.lab.log)
    assert await desk.told(after=token) == [["b1"]] and desk.scopes.reads >= 2


@in_loop
async def test_mended_rows_are_read_though_no_event_happened(desk: Desk) -> None:
    desk.happens(proposed("b1"))
    assert await desk.told() == [["b1"]]
    db = desk.generation()
    beliefs = next(table for table in BELIEFS_PROJECTION.tables if table.name == "beliefs")
    db.write_now(lambda conn: conn.execute(beliefs.delete()))
    db.write_now(lambda conn: raise_owner_epoch(conn, partition_of("default", IDA, PARTITIONS)))
    db.close()
    assert await desk.told() == [[]]


@in_loop
async def test_confidence_decays_though_nothing_happens(desk: Desk) -> None:
    desk.happens(proposed("b1"))
    for s in (1, FRESH_S / 2, FRESH_S):  # one and the same moment is read for all of these
        assert await desk.told(at=NOW + timedelta(seconds=s)) == [["b1"]] and desk.scopes.reads == 1
    assert await desk.told(at=NOW + timedelta(days=40)) == [[]]  # untouched for too long
    assert await desk.told(at=NOW) == [["b1"]]


@in_loop
async def test_several_requests_for_a_scope_read_it_once(desk: Desk) -> None:
    desk.happens(proposed("b1"))
    found = await asyncio.gather(*(desk.told() for _ in range(10)))
    assert found == [[["b1"]]] * 10 and desk.scopes.reads == 1


@in_loop
async def test_what_was_used_longest_ago_makes_room(lab: Lab) -> None:
    desk = Desk(lab, max_kept=3 * (SCOPE + 1))
    try:
        desk.happens(*(proposed("b", user=f"u{n}") for n in range(6)))
        for n in range(6):
            assert await desk.told(f"user/u{n}") == [["b"]]
            assert desk.scopes.kept <= 3 * (SCOPE + 1)
        assert await desk.told("user/u5") == [["b"]] and desk.scopes.reads == 6
        assert await desk.told("user/u0") == [["b"]] and desk.scopes.reads == 7
    finally:
        desk.close()
