"""Rebuild over both stores: beside the live generation, exactly handed over, checked, resumed, refused when due."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from events.database import Stores
from events.errors import Refused, Transient
from events.event import Position
from events.tokens import write_token
from projections import generations
from projections.engine import checkpoints, ownership
from projections.engine.birth import ensure_first_generation
from projections.engine.folder import PartitionFolder
from projections.engine.projector import Projector
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.fingerprint import fingerprint
from projections.projection import Projection, Put
from projections.read_models import ReadModels
from projections.rebuilding.rebuild import Cancelled, CheckFailed, Progress, drop, drop_old, rebuild, rollback
from projections.rebuilding.verify import as_document, verify
from tests.contracts.engine_lab import NOTES, PARTITIONS, TOY, Lab, lab_in, note, where


def second(version: int = 2, apply: Any = TOY.apply) -> Projection:
    """The toy after its code changed."""
    return Projection("toy", version, TOY.tables, TOY.handles, apply, TOY.names)


def fold_active(lab: Lab, projection: Projection = TOY) -> None:
    """Fold the active generation to the watermark, as a projector would."""
    ensure_first_generation(projection, lab.stores, lab.log, "test")
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None
    store = GenerationStore(projection, lab.stores.generation(active.name))
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "test", batch=3)
        while folder.step().read:
            pass
        folder.hand_over()
    store.db.close()


def test_a_rebuild_by_the_same_code_gives_the_same_rows(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 7}", "poison" if i == 20 else f"n{i % 3}", i) for i in range(60)))
    fold_active(lab)
    reports: list[Progress] = []
    active = rebuild(TOY, lab.stores, lab.log, progress=reports.append, verify=True, batch=11)
    assert (active.number, active.state) == (2, "active")
    assert lab.rows("toy__g1") == lab.rows("toy__g2")
    last = reports[-1]
    assert (last.phase, last.done, last.total) == ("done", 60, 60)
    assert lab.log.read_now(lambda conn: generations.get(conn, "toy", 1)).state == "retired"
    assert lab.log.read_now(lambda conn: generations.get(conn, "toy", 2)).progress["done"] == 60
    document = as_document([verify(TOY, lab.stores, lab.log)])
    assert document["equal"] is True
    assert document["projections"][0].keys() == {"name", "generation", "checksum", "equal", "first_differences"}
    assert document["projections"][0]["generation"] == 2


def test_a_checksum_does_not_depend_on_the_store(tmp_path: Path, postgres: Any) -> None:
    sums = []
    for stores in (Stores(f"sqlite:///{tmp_path}"), Stores(postgres.new_database())):
        lab = Lab(stores)
        lab.archive(*(note(f"e{i}", f"t{i % 7}", f"n{i % 3}", {"x": [i / 3, None, "ü"]}) for i in range(30)))
        rebuild(TOY, stores, lab.log)
        sums.append(verify(TOY, stores, lab.log).checksum)
        lab.log.close()
    assert sums[0] == sums[1]


def test_events_that_arrive_while_it_runs_are_not_lost_and_no_read_goes_back(lab: Lab) -> None:
    """Publishing, the live projector and readers go on; the swap happens between two reads."""

    async def run() -> None:
        models = ReadModels([TOY], lab.stores, lab.log)
        projector = Projector([TOY], lab.stores, lab.log, "live", lease_ttl_s=2.0, poll_s=0.02, batch=20)
        await asyncio.to_thread(lab.archive, *(note(f"e{i}", f"t{i % 5}", f"n{i % 3}", i) for i in range(400)))
        await projector.start()
        done = threading.Event()
        published = 400

        async def publish() -> None:
            nonlocal published
            while not done.is_set():
                await asyncio.to_thread(
                    lab.archive, *(note(f"e{published + i}", f"t{i % 5}", f"n{i % 3}", i) for i in range(10))
                )
                published += 10
                for partition in range(PARTITIONS):
                    projector.wake(partition)

        async def read() -> set[str]:
            seen: dict[int, Position] = {}
            names = set()
            while not done.is_set():
                found = await models.read("toy", lambda conn: None)
                names.add(found.generation)
                for partition, position in found.positions.items():
                    assert position >= seen.get(partition, position), "a read went back"
                seen = dict(found.positions)
            return names

        async def rebuild_twice() -> None:
            for _ in range(2):
                await asyncio.to_thread(rebuild, TOY, lab.stores, lab.log, batch=50)
                await asyncio.sleep(0.3)
            done.set()

        _, names, _ = await asyncio.gather(publish(), read(), rebuild_twice())
        assert {"toy__g2", "toy__g3"} <= names
        token = write_token([(partition, mark) for partition, mark in lab.marks().items() if mark.n >= 0])
        final = await models.read("toy", lambda conn: conn.execute(select(NOTES)).all(), after=token, timeout_s=60)
        assert (final.reached, final.generation) == (True, "toy__g3")
        tallies = lab.rows("toy__g3")["tallies"]
        assert sum(row[2] for row in tallies) == published
        await projector.stop()
        models.close()
        assert (await asyncio.to_thread(verify, TOY, lab.stores, lab.log)).equal

    asyncio.run(run())


def test_reading_ones_writes_waits_and_says_when_it_was_in_vain(lab: Lab) -> None:
    async def run() -> None:
        ensure_first_generation(TOY, lab.stores, lab.log, "test")
        models = ReadModels([TOY], lab.stores, lab.log)
        (position,) = lab.archive(note("e1", "t", "a", 1))
        token = write_token([(where("t"), position)])

        def read(conn: Any) -> Any:
            return conn.execute(select(NOTES.c.content)).scalars().all()

        late = await models.read("toy", read, after=token, timeout_s=0.05)
        assert (late.reached, late.value) == (False, [])
        waiting = asyncio.create_task(models.read("toy", read, after=token, timeout_s=60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(fold_active, lab)
        found = await waiting
        assert (found.reached, found.value) == (True, [1])
        with pytest.raises(Refused, match="no read model 'nothing'"):
            await models.read("nothing", read)
        with pytest.raises(Refused, match="position token"):
            await models.read("toy", read, after="rubbish!")
        models.close()

    asyncio.run(run())


def test_before_its_first_generation_a_read_model_says_so(lab: Lab) -> None:
    async def run() -> None:
        lab.archive(note("e1", "t", "a"))
        models = ReadModels([TOY], lab.stores, lab.log)
        with pytest.raises(Transient, match="no generation yet"):
            await models.read("toy", lambda conn: None)
        (status,) = await models.status()
        assert (status.state, status.lag_events) == ("missing", 1)
        models.close()

    asyncio.run(run())


def test_a_rebuild_whose_builder_is_gone_is_shown_as_abandoned(lab: Lab) -> None:
    async def state() -> tuple[str, str]:
        models = ReadModels([TOY], lab.stores, lab.log)
        (status,) = await models.status()
        models.close()
        return status.state, status.reason

    fold_active(lab)
    lease = ownership.rebuild_lease("toy")
    lab.log.write_now(lambda conn: ownership.acquire(conn, lease, 0, "builder", 0.3))
    lab.log.write_now(lambda conn: generations.create(conn, TOY))
    assert asyncio.run(state()) == ("rebuilding", "")
    time.sleep(0.5)  # and the lease is not renewed
    shown, reason = asyncio.run(state())
    assert shown == "abandoned"
    assert "run `refold rebuild toy`" in reason
    assert rebuild(TOY, lab.stores, lab.log).number == 2
    assert asyncio.run(state())[0] not in ("rebuilding", "abandoned")


def test_a_second_rebuild_of_the_same_read_model_is_refused(lab: Lab) -> None:
    lease = ownership.rebuild_lease("toy")
    lab.log.write_now(lambda conn: ownership.acquire(conn, lease, 0, "somebody", 30))
    with pytest.raises(Refused, match="being rebuilt already"):
        rebuild(TOY, lab.stores, lab.log)
    assert lab.log.read_now(generations.list_all) == []


def test_a_cancelled_rebuild_leaves_everything_as_it_was(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 7}", "a", i) for i in range(30)))
    fold_active(lab)
    with pytest.raises(Cancelled):
        rebuild(TOY, lab.stores, lab.log, cancel=lambda: True)
    states = {g.number: g.state for g in lab.log.read_now(generations.list_all)}
    assert states == {1: "active", 2: "cancelled"}
    lab.archive(note("f1", "t1", "b", 1))
    fold_active(lab)
    assert rebuild(TOY, lab.stores, lab.log).number == 3


def test_code_that_cannot_fold_what_the_old_could_is_not_made_active(lab: Lab) -> None:
    def broken(recorded: Any, rows: Any) -> Any:
        if recorded.event.id == "e3":
            raise KeyError("renamed")
        return TOY.apply(recorded, rows)

    lab.archive(*(note(f"e{i}", f"t{i}", "poison" if i == 5 else "a", i) for i in range(8)))
    fold_active(lab)
    with pytest.raises(CheckFailed, match=r"1 events .* first note\.written 'e3': KeyError"):
        rebuild(second(2, broken), lab.stores, lab.log)
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None
    assert active.number == 1
    lab.archive(note("f1", "t1", "b", 1))
    fold_active(lab)  # it was not left sealed
    assert rebuild(second(2, broken), lab.stores, lab.log, allow_dead_letters=True).number == 3


def test_a_fold_that_depends_on_batches_fails_its_check(lab: Lab) -> None:
    calls = 0

    def impure(recorded: Any, rows: Any) -> Any:
        nonlocal calls
        calls += 1
        return [Put("notes", {"name": recorded.event.id, "content": calls, "version": 1})]

    lab.archive(*(note(f"e{i}", "t", "a", i) for i in range(5)))
    with pytest.raises(CheckFailed, match="not pure"):
        rebuild(second(2, impure), lab.stores, lab.log, verify=True)


def test_rollback_goes_back_to_the_generation_before_and_loses_nothing(lab: Lab) -> None:
    lab.archive(note("e1", "t", "a", 1))
    fold_active(lab)
    rebuild(TOY, lab.stores, lab.log)
    lab.archive(note("e2", "t", "b", 2))
    fold_active(lab)
    back = rollback("toy", lab.stores, lab.log, TOY)
    assert (back.number, back.state) == (1, "active")
    assert lab.rows("toy__g1") == lab.rows("toy__g2")
    lab.archive(note("e3", "t", "c", 3))
    fold_active(lab)
    assert len(lab.rows("toy__g1")["notes"]) == 3


def test_only_what_nobody_reads_is_dropped(lab: Lab) -> None:
    fold_active(lab)
    for _ in range(3):
        rebuild(TOY, lab.stores, lab.log)
    active = lab.log.read_now(partial(generations.active, projection="toy"))
    assert active is not None
    with pytest.raises(Refused, match="cannot be dropped"):
        drop(active, lab.stores, lab.log)
    assert [g.number for g in drop_old("toy", lab.stores, lab.log)] == [2, 1]
    assert {g.number: g.state for g in lab.log.read_now(generations.list_all)} == {
        4: "active", 3: "retired", 2: "dropped", 1: "dropped",
    }  # fmt: skip
    with pytest.raises(Refused, match="no generation 9"):
        lab.log.read_now(lambda conn: generations.get(conn, "toy", 9))


def test_a_generation_sealed_by_a_builder_that_died_is_folded_again(lab: Lab) -> None:
    async def run() -> None:
        fold_active(lab)
        db = lab.stores.generation("toy__g1")
        db.write_now(lambda conn: checkpoints.seal(conn, True))
        db.close()
        lab.archive(note("e1", "t", "a", 1))
        projector = Projector([TOY], lab.stores, lab.log, "live", lease_ttl_s=2.0, poll_s=0.02)
        models = ReadModels([TOY], lab.stores, lab.log)
        await projector.start()
        token = write_token([(partition, mark) for partition, mark in lab.marks().items() if mark.n >= 0])
        assert (await models.read("toy", lambda conn: None, after=token, timeout_s=60)).reached
        await projector.stop()
        models.close()

    asyncio.run(run())


def test_several_processes_give_the_same_rows_and_outlive_a_deadly_event(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7 in a rebuild: a process that folds for it dies, its successors find out which event it was."""
    monkeypatch.setattr("projections.rebuilding.rebuild_together.WORTH_PROCESSES", 10)
    lab.archive(*(note(f"e{i}", f"t{i % 7}", "die" if i == 30 else f"n{i % 3}", i) for i in range(60)))
    harmless = rebuild(TOY, lab.stores, lab.log, processes=2, batch=7)
    assert lab.rows(harmless.name)["dead_letters"] == []
    monkeypatch.setenv("TOY_DIES", "1")
    deadly = rebuild(TOY, lab.stores, lab.log, processes=2, batch=7, allow_dead_letters=True)
    letters = lab.rows(deadly.name)["dead_letters"]
    assert [letter[3:] for letter in letters if letter[4] == "killed"] == [("e30", "killed")]
    assert {letter[3] for letter in letters} == {"e30", "e37", "e44", "e51", "e58"}
    assert verify(TOY, lab.stores, lab.log).equal, "verify does not die on what is known to kill"


BUILDER = """
import os, sys
from events.database import Stores
from projections.rebuilding.rebuild import rebuild
from tests.contracts.engine_lab import TOY

stores = Stores(sys.argv[1])
log = stores.log()
seen = 0

def stop_here(progress):
    print("folding", flush=True)

rebuild(TOY, stores, log, batch=5, progress=stop_here, lease_ttl_s=1.0)
"""


def test_a_killed_rebuild_is_continued_from_its_checkpoints(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    lab.archive(*(note(f"e{i}", f"t{i % 7}", f"n{i % 3}", i) for i in range(2000)))
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDER, lab.stores.url],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "folding\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    begun = lab.log.read_now(lambda conn: generations.building(conn, "toy"))
    assert begun is not None
    db = lab.stores.generation(begun.name)
    left_at = db.read_now(checkpoints.read_vector)
    db.close()
    assert sum(position.n + 1 for position in left_at.values()) > 0
    deadline = time.monotonic() + 60
    while True:
        try:
            active = rebuild(TOY, lab.stores, lab.log, verify=True)
            break
        except Refused:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert active.number == begun.number
    assert sum(row[2] for row in lab.rows(active.name)["tallies"]) == 2000
    lab.log.close()


def test_a_fingerprint_tells_other_code_from_the_same(tmp_path: Path) -> None:
    """Equal in every process and hash seed; other with the version, the columns or the handled types."""
    code = (
        "from tests.contracts.engine_lab import TOY\n"
        "from projections.fingerprint import fingerprint\nprint(fingerprint(TOY))"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2", "77")
    }  # fmt: skip
    assert prints == {fingerprint(TOY)}
    others = {
        fingerprint(second(2)),
        fingerprint(Projection("toy", 1, TOY.tables[:2], TOY.handles, TOY.apply)),
        fingerprint(Projection("toy", 1, TOY.tables, TOY.handles - {"tool.called"}, TOY.apply)),
    }
    assert len(others | prints) == 4
