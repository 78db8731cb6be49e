"""The database's clock jumps, as the leases see it: nobody waits for an owner that is gone, and nothing goes wrong."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, update

from events.archive.schema import leases
from events.database import Database
from projections.engine import ownership
from projections.read_models import ReadModels
from tests.contracts.engine_lab import PARTITIONS, TOY, lab_in, note
from tests.integration.test_ownership import LEASE_S, active_dump, caught_up, projector, reference, until

HOUR_MS = 3_600_000


def shift(db: Database, by_ms: int) -> None:
    """Let the leases look as if the clock had gone back (``by_ms`` > 0) or forward since they were written."""
    db.write_now(lambda conn: conn.execute(update(leases).values(expires_ms=leases.c.expires_ms + by_ms)))


def test_a_lease_from_before_the_clock_went_back_is_free(log_db: Database) -> None:
    def take(owner: str) -> bool:
        return log_db.write_now(lambda conn: ownership.acquire(conn, "toy__g1", 0, owner, LEASE_S))

    assert take("dead")
    assert not take("heir")
    shift(log_db, HOUR_MS)
    survey = log_db.read_now(lambda conn: ownership.survey(conn, "toy__g1", LEASE_S))
    assert survey.owners == {}
    assert take("heir")
    shift(log_db, -HOUR_MS)
    assert take("third")


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_projectors_go_on_when_the_clock_jumps(tmp_path: Path, by_ms: int) -> None:
    """A dead worker's leases and its place among the workers go at once, the living go on, each event counts once."""
    lab = lab_in(tmp_path)
    events = [note(f"e{i}", f"t{i % 9}", f"n{i % 4}", i) for i in range(60)]

    def die(conn: Connection) -> None:
        ownership.join(conn, "toy__g1", "dead", LEASE_S)
        for partition in range(PARTITIONS):
            ownership.acquire(conn, "toy__g1", partition, "dead", LEASE_S)

    async def happen() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        first = projector(lab, "first")
        await first.start()
        await until(partial(caught_up, models))
        await first.stop()
        await lab.log.write(die)
        positions = lab.archive(*events[:20])
        second = projector(lab, "second")
        await second.start()
        shift(lab.log, by_ms)
        await until(partial(caught_up, models))
        shift(lab.log, by_ms)
        positions += lab.archive(*events[20:])
        await until(partial(caught_up, models))
        await second.stop()
        models.close()
        assert active_dump(lab) == reference(events, positions)

    try:
        asyncio.run(happen())
    finally:
        lab.log.close()
