"""Two writers that meet on the same rows in opposite orders: one of them wins, and none is ended as a deadlock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, text

from events.database import Database, Stores
from events.errors import Fenced
from projections.engine import ownership
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.registry import PROJECTIONS
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.contracts.naive import naive_fold
from tests.contracts.owners import dump_of, whole_log
from tests.stack import event

BELIEFS = PROJECTIONS["beliefs"]
ROUNDS = 8
EXPIRED_S = -1.0


def proposed(belief: str, statement: str) -> Any:
    """A belief of one agent, so that all of them lie in one partition."""
    data = {"belief": belief, "kind": "learning", "statement": statement, "scope": "agent"}
    return event(type_="belief.proposed", agent="coder", data=data)


class Owner:
    """An owner as if in a process of its own: it has its own connections."""

    def __init__(self, stores: Stores, name: str) -> None:
        self._name = name
        self._log = stores.log()
        self._store = GenerationStore(BELIEFS, stores.generation("beliefs__g1"))

    def take_over(self, partition: int) -> None:
        """Become the owner: a batch is two events."""
        source = ArchiveSource(self._log)
        self._folder = PartitionFolder.take_over(self._store, source, partition, self._name, batch=2)

    def step(self) -> bool:
        """Fold a batch; False when somebody else is the owner by now. Nothing else may happen to it."""
        try:
            return self._folder.step().read > 0
        except Fenced:
            return False

    def hand_over(self) -> None:
        """As far as it still can."""
        self._folder.hand_over()

    def close(self) -> None:
        self._store.db.close()
        self._log.close()


def store_of(lab: Lab) -> GenerationStore:
    store = GenerationStore(BELIEFS, lab.stores.generation("beliefs__g1"))
    store.create(PARTITIONS)
    return store


def partition_of_all(lab: Lab) -> int:
    (partition,) = {archived.partition for archived in whole_log(lab.log)}
    return partition


def check(lab: Lab, store: GenerationStore, *owners: Owner) -> None:
    """The rows are those of the log. Closes everything."""
    for owner in owners:
        owner.close()
    assert dump_of(store.db, BELIEFS) == naive_fold(BELIEFS, whole_log(lab.log))
    store.db.close()


def test_a_former_owner_and_its_successor_upsert_in_opposite_orders(lab: Lab) -> None:
    """C36: beliefs [a, b] by one and [b, a] by the other, at the same moment, again and again."""
    store = store_of(lab)
    former, successor = Owner(lab.stores, "former"), Owner(lab.stores, "successor")
    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            lab.archive(*(proposed(belief, f"{belief} of {number}") for belief in ("a", "b", "b", "a")))
            for owner in (former, successor):
                owner.take_over(partition_of_all(lab))
            assert successor.step()
            steps = [threads.submit(owner.step) for owner in (former, successor)]
            assert [step.result(60) for step in steps] == [False, True]
            successor.hand_over()
    check(lab, store, former, successor)


def test_who_is_fenced_waits_for_no_row(postgres: Any) -> None:
    """C36: the successor is in the middle of its transaction; a former owner that wakes then is told at once."""
    lab = Lab(Stores(postgres.new_database()))
    store = store_of(lab)
    former, successor = Owner(lab.stores, "former"), Owner(lab.stores, "successor")
    lab.archive(*(proposed(belief, f"first of {belief}") for belief in ("a", "b", "b", "a")))
    for owner in (former, successor):
        owner.take_over(partition_of_all(lab))
    assert successor.step()
    with ThreadPoolExecutor(3) as threads:
        with row_held(store.db, "b", threads):
            advancing = threads.submit(successor.step)
            until_one_waits(lab.log)
            assert not threads.submit(former.step).result(60), "a former owner committed"
            assert not advancing.done()
        assert advancing.result(60)
    check(lab, store, former, successor)
    lab.log.close()


def test_a_worker_that_wakes_and_its_heir_want_the_same_leases(postgres: Any) -> None:
    """One renews what it thinks its own, in whatever order the table has it; the other takes it over meanwhile."""
    lab = Lab(Stores(postgres.new_database()))
    other = lab.stores.log()
    took_one: Future[None] = Future()

    def hold(conn: Connection, partition: int) -> bool:
        return ownership.acquire(conn, "toy__g1", partition, "sleeper", EXPIRED_S)

    def inherit(conn: Connection) -> list[bool]:
        taken = [ownership.acquire(conn, "toy__g1", 0, "heir", 60)]
        took_one.set_result(None)
        until_one_waits(other)
        return [*taken, ownership.acquire(conn, "toy__g1", 1, "heir", 60)]

    for partition in (0, 1, 0):  # what was written last lies last
        assert lab.log.write_now(partial(hold, partition=partition))
    with ThreadPoolExecutor(2) as threads:
        inheriting = threads.submit(lab.log.write_now, inherit)
        took_one.result(60)
        renewing = threads.submit(other.write_now, lambda conn: ownership.renew(conn, "sleeper", 60))
        assert inheriting.result(60) == [True, True]
        assert renewing.result(60) == set()
    other.close()
    lab.log.close()


@contextmanager
def row_held(db: Database, belief: str, threads: ThreadPoolExecutor) -> Iterator[None]:
    """Somebody else has a row of a belief in its transaction meanwhile."""
    held: Future[None] = Future()
    free: Future[None] = Future()

    def hold(conn: Any) -> None:
        conn.execute(text("SELECT * FROM beliefs WHERE belief = :belief FOR UPDATE"), {"belief": belief}).one()
        held.set_result(None)
        free.result(60)

    holding = threads.submit(db.write_now, hold)
    held.result(60)
    try:
        yield
    finally:
        free.set_result(None)
    holding.result(60)


def until_one_waits(db: Database) -> None:
    """Until a session of this database waits for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 60
    while db.read_now(lambda conn: conn.execute(text(query)).scalar_one()) != 1:
        assert time.monotonic() < deadline, "nobody waits for the row"
        time.sleep(0.02)
