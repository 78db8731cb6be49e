"""Mending a live generation over both stores: one key or tenant made anew while everything else goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import MetaData, delete, insert, select, update

from events.database import Database
from events.errors import Fenced, Refused, Transient
from projections.engine import checkpoints, tables
from projections.engine.folder import PartitionFolder
from projections.engine.projector import Projector
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.rebuilding.mend import mend
from projections.rebuilding.scope import Scope
from projections.rebuilding.scratch import MARK
from projections.rebuilding.verify import verify
from tests.contracts.engine_lab import CALLS, NOTES, TALLIES, TOY, Lab, discard, dump, note, where
from tests.contracts.test_rebuild_contract import fold_active
from tests.instance import until

KEY = Scope("default", "task/t1")


@contextmanager
def generation(lab: Lab) -> Iterator[Database]:
    db = lab.stores.generation("toy__g1")
    try:
        yield db
    finally:
        db.close()


def damage(db: Database, task: str, org: str = "default") -> None:
    """A row changed, one gone, one invented, as a person with a SQL prompt may do."""

    def work(conn: Any) -> None:
        mine = (NOTES.c.org == org, NOTES.c.key == f"task/{task}")
        conn.execute(update(NOTES).where(*mine).values(content="rubbish"))
        conn.execute(delete(TALLIES).where(TALLIES.c.org == org, TALLIES.c.key == f"task/{task}"))
        conn.execute(insert(CALLS), {"org": org, "key": f"task/{task}", "call": "never", "result": {"made": "up"}})

    db.write_now(work)


def test_a_damaged_key_is_made_anew_and_no_other(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 4}", f"n{i % 2}", i) for i in range(40)))
    lab.archive(*(note(f"p{i}", "t1", key) for i, key in enumerate(["poison", "n0", "n1"])))
    fold_active(lab)
    with generation(lab) as db:
        before = dump(db)
        damage(db, "t1")
        damage(db, "t2")
        of_others = dump(db)
        mended = mend(TOY, lab.stores, lab.log, KEY, batch=7)
        assert {(row.table, row.change) for row in mended.diff.first} == {
            ("notes", "changed"), ("tallies", "added"), ("calls", "removed"),
        }  # fmt: skip
        assert [row for row in dump(db)["notes"] if row[1] != "task/t1"] == [
            row for row in of_others["notes"] if row[1] != "task/t1"
        ]
        again = mend(TOY, lab.stores, lab.log, Scope("default", "task/t2"))
        assert again.diff.differs
        assert dump(db) == before
        assert not mend(TOY, lab.stores, lab.log, KEY).diff.differs
    assert verify(TOY, lab.stores, lab.log).equal
    assert lab.stores.find_generations(MARK) == []


def test_a_tenant_is_made_anew_and_no_other(lab: Lab) -> None:
    events = [note(f"{org}{i}", f"t{i % 5}", "n", i, org=org) for org in ("default", "acme") for i in range(15)]
    lab.archive(*events)
    fold_active(lab)
    with generation(lab) as db:
        before = dump(db)
        for task in ("t0", "t3"):
            damage(db, task, "acme")
        mended = mend(TOY, lab.stores, lab.log, Scope("acme"))
        assert mended.diff.differs and {row.key[0] for row in mended.diff.first} == {"acme"}
        assert dump(db) == before
    document = mended.as_dict()
    assert (document["tenant"], document["key"], document["differs"]) == ("acme", None, True)


def test_dead_letters_and_discards_are_as_the_log_says(lab: Lab) -> None:
    """Lost dead letters come back; a discarded event stays left out."""
    lab.archive(
        note("e1", "t1", "n"), note("e2", "t1", "poison"), note("e3", "t1", "n"), discard("d", "t1", "e2"),
        note("e4", "t1", "poison"), note("e5", "t1", "n"),
    )  # fmt: skip
    fold_active(lab)
    with generation(lab) as db:
        before = dump(db)
        db.write_now(lambda conn: [conn.execute(delete(t)) for t in (tables.dead_letters, tables.parked_keys)])
        damage(db, "t1")
        mend(TOY, lab.stores, lab.log, KEY)
        assert dump(db) == before
        assert [letter[3] for letter in before["dead_letters"]] == ["e4", "e5"]


def test_an_owner_does_not_write_on_from_what_it_had_cached(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", "t1", "n", i) for i in range(6)))
    fold_active(lab)
    with generation(lab) as db:
        store = GenerationStore(TOY, db)
        owner = PartitionFolder.take_over(store, ArchiveSource(lab.log), where("t1"), "owner")
        other = PartitionFolder.take_over(store, ArchiveSource(lab.log), (where("t1") + 1) % 4, "other")
        damage(db, "t1")
        mend(TOY, lab.stores, lab.log, KEY)
        lab.archive(note("e6", "t1", "n", 6))
        with pytest.raises(Fenced):
            owner.step()
        assert other.step().read == 0, "an owner of another partition is left alone"
        other.hand_over()


class Stream:
    """Events that keep coming, and a projector that folds them."""

    def __init__(self, lab: Lab) -> None:
        self.published = 0
        self._lab = lab
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._projector = Projector([TOY], lab.stores, lab.log, "p", batch=5, poll_s=0.02)

    async def start(self) -> None:
        await self._projector.start()
        self._publishing = self._loop.run_in_executor(None, self._publish)

    async def more(self) -> None:
        """Until some more are published."""
        wanted = self.published + 20
        await asyncio.to_thread(until, lambda: self.published > wanted)

    async def dry_up(self, db: Database) -> None:
        """Until no more come and all are folded."""
        self._stop.set()
        await self._publishing
        await asyncio.to_thread(until, lambda: db.read_now(checkpoints.read_vector) == self._lab.marks())

    async def stop(self) -> None:
        self._stop.set()
        await self._publishing
        await self._projector.stop()

    def _publish(self) -> None:
        while not self._stop.is_set():
            first = self.published
            self._lab.archive(*(note(f"f{first + i}", f"t{i % 3}", f"n{i % 2}", first) for i in range(9)))
            self.published += 9
            for partition in range(4):
                self._loop.call_soon_threadsafe(self._projector.wake, partition)


def test_while_events_flow_and_a_projector_folds_them(lab: Lab) -> None:
    async def main() -> None:
        stream = Stream(lab)
        await stream.start()
        try:
            with generation(lab) as db:
                for _ in range(3):
                    await stream.more()
                    await db.write(lambda conn: conn.execute(update(NOTES).values(content="rubbish")))
                    await asyncio.to_thread(mend, TOY, lab.stores, lab.log, KEY)
                    await asyncio.to_thread(mend, TOY, lab.stores, lab.log, Scope("default"))
                await stream.dry_up(db)
        finally:
            await stream.stop()

    asyncio.run(main())
    assert verify(TOY, lab.stores, lab.log).equal


KILLED = """
import os, signal, sys
from projections.rebuilding import mend
from projections.rebuilding.scope import Scope
from tests.contracts.engine_lab import TOY
from events.database import Stores

stores = Stores(sys.argv[1])
mend.bulk_insert = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
mend.mend(TOY, stores, stores.log(), Scope("default"))
"""


def test_one_that_is_killed_between_deleting_and_writing_has_changed_nothing(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 3}", "n", i) for i in range(9)))
    fold_active(lab)
    with generation(lab) as db:
        right = dump(db)
        damage(db, "t1")
        damaged = dump(db)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", KILLED, lab.stores.url], env=env, check=False)
        assert done.returncode == -signal.SIGKILL
        assert dump(db) == damaged
        assert mend(TOY, lab.stores, lab.log, Scope("default")).diff.differs
        assert dump(db) == right
    fold_active(lab)


def test_what_cannot_be_mended_is_refused(lab: Lab) -> None:
    with pytest.raises(Refused, match="no generation yet"):
        mend(TOY, lab.stores, lab.log, KEY)
    lab.archive(note("e1", "t1", "n"))
    fold_active(lab)
    with pytest.raises(Refused, match="is a rebuild"):
        mend(TOY, lab.stores, lab.log, Scope())
    with pytest.raises(Refused, match="refold rebuild toy"):
        mend(replace(TOY, version=2), lab.stores, lab.log, KEY)
    with generation(lab) as db:
        db.write_now(lambda conn: checkpoints.seal(conn, True))
        sealed = db.read_now(lambda conn: conn.execute(select(tables.checkpoints.c.owner_epoch)).scalars().all())
        with pytest.raises(Transient, match="try again"):
            mend(TOY, lab.stores, lab.log, KEY)
        after = db.read_now(lambda conn: conn.execute(select(tables.checkpoints.c.owner_epoch)).scalars().all())
        assert after == sealed, "a swap counts on these"


def test_a_key_without_events_loses_rows_that_were_made_up(lab: Lab) -> None:
    lab.archive(note("e1", "t1", "n"))
    fold_active(lab)
    with generation(lab) as db:
        damage(db, "ghost")
        mended = mend(TOY, lab.stores, lab.log, Scope("default", "task/ghost"))
        assert [(row.table, row.change) for row in mended.diff.first] == [("calls", "removed")]
        assert dump(db)["calls"] == []


def test_owners_wait_for_rows_and_not_for_the_shapes_of_tables(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look shapes up takes longer than to replace a key's rows, and the partition's owner is held up meanwhile."""
    lab.archive(*(note(f"e{i}", "t1", f"n{i}", i) for i in range(5)))
    fold_active(lab)
    done: list[str] = []
    fence, look = checkpoints.raise_owner_epoch, MetaData.reflect

    def fencing(*given: Any) -> None:
        done.append("fence")
        fence(*given)

    def looking(*given: Any, **more: Any) -> None:
        done.append("look")
        look(*given, **more)

    monkeypatch.setattr(checkpoints, "raise_owner_epoch", fencing)
    monkeypatch.setattr(MetaData, "reflect", looking)
    mend(TOY, lab.stores, lab.log, KEY)
    assert done == ["look", "look", "fence"]
