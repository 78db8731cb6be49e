"""What a dead process held is free at once for whoever knows that it is dead (C6)."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from events.database import Database
from projections.engine import ownership

LEASE_S = 600.0
DEAD, OWN, OTHER = "host:17:aaaa", "host:17:bbbb", "host:170:cccc"


def test_leases_of_a_dead_process_are_free_at_once_and_those_of_others_are_not(log_db: Database) -> None:
    """Its name may be a part of another's, and its process id one that was given away again, as in a container."""
    log_db.write_now(_taken)
    assert log_db.write_now(partial(ownership.forsake, dead="host:17:", own=OWN)) == 3
    owners = log_db.read_now(partial(ownership.survey, generation="cards__g1"))
    assert owners.owners == {1: OWN, 2: OTHER}
    assert owners.workers == {OWN}
    assert log_db.write_now(
        partial(ownership.acquire, name="indexer", partition=0, owner=f"{OWN}/indexer", ttl_s=LEASE_S)
    )


def _taken(conn: Connection) -> None:
    for partition, owner in enumerate((DEAD, OWN, OTHER)):
        assert ownership.acquire(conn, "cards__g1", partition, owner, LEASE_S)
    ownership.join(conn, "cards__g1", DEAD, LEASE_S)
    ownership.join(conn, "cards__g1", OWN, LEASE_S)
    assert ownership.acquire(conn, "indexer", 0, f"{DEAD}/indexer", LEASE_S)
    assert not ownership.acquire(conn, "indexer", 0, f"{OWN}/indexer", LEASE_S)
