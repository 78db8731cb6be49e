"""Several read models in one pass: the same rows as one by one, each read once, and one's failure is its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, select, update

from events.archive.schema import leases
from events.errors import Fenced, Refused, Transient
from projections import generations
from projections.engine import ownership
from projections.engine import tables as engine_tables
from projections.engine.birth import create_store
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.projection import Projection
from projections.rebuilding.building import CheckFailed
from projections.rebuilding.progress import Cancelled, Progress
from projections.rebuilding.rebuild import rebuild
from projections.rebuilding.rebuild_together import NotAllRebuilt, rebuild_together
from projections.rebuilding.verify import verify
from tests.contracts.engine_lab import PARTITIONS, TOY, Lab, discard, lab_in, note


def sibling(name: str, apply: Any = TOY.apply) -> Projection:
    """A read model like the toy beside it."""
    return Projection(name, 1, TOY.tables, TOY.handles, apply, TOY.names)


OTHER = sibling("other")


def _ill(recorded: Any, rows: Any) -> Any:
    raise OSError("no space left on device")


ILL = sibling("ill", _ill)
"""One that cannot go on for now, in whatever process."""


def states(lab: Lab) -> dict[str, str]:
    return {g.name: g.state for g in lab.log.read_now(generations.list_all)}


def fill(lab: Lab, count: int = 60) -> None:
    """Notes of seven tasks, one of them poison, later discarded, and a poison one that is not."""
    events = [note(f"e{i}", f"t{i % 7}", "poison" if i in (20, 33) else f"n{i % 3}", i) for i in range(count)]
    lab.archive(*events[:40], *(discard(f"d-{name}", "t6", "e20", name) for name in ("toy", "other")), *events[40:])


def test_several_read_models_come_out_as_if_each_was_rebuilt_alone(lab: Lab) -> None:
    fill(lab)
    told: dict[str, Progress] = {}
    built = rebuild_together([TOY, OTHER], lab.stores, lab.log, progress=told.__setitem__, verify=True, batch=11)
    assert {name: (g.name, g.state) for name, g in built.items()} == {
        "toy": ("toy__g1", "active"), "other": ("other__g1", "active"),
    }  # fmt: skip
    alone = rebuild(TOY, lab.stores, lab.log)
    assert lab.rows("toy__g1") == lab.rows("other__g1") == lab.rows(alone.name)
    assert {name: (progress.phase, progress.done, progress.total) for name, progress in told.items()} == {
        "toy": ("done", 62, 62), "other": ("done", 62, 62),
    }  # fmt: skip


def test_each_event_is_read_and_decoded_once_for_all(lab: Lab) -> None:
    """Both folds see the same decoded events, not equal ones."""
    seen: dict[str, list[Any]] = {"a": [], "b": []}

    def watching(name: str, recorded: Any, rows: Any) -> Any:
        seen[name].append(recorded)
        return TOY.apply(recorded, rows)

    lab.archive(*(note(f"e{i}", f"t{i % 7}", f"n{i % 3}", i) for i in range(40)))
    rebuild_together([sibling(name, partial(watching, name)) for name in seen], lab.stores, lab.log, batch=6)
    assert len(seen["a"]) == len(seen["b"]) == 40
    assert {id(recorded) for recorded in seen["a"]} == {id(recorded) for recorded in seen["b"]}


def test_one_that_fails_does_not_take_the_others_down(lab: Lab) -> None:
    def broken(recorded: Any, rows: Any) -> Any:
        if recorded.event.id == "e3":
            raise KeyError("renamed")
        return TOY.apply(recorded, rows)

    fill(lab)
    for name in ("checked", "toy"):
        rebuild(sibling(name), lab.stores, lab.log)
    lab.log.write_now(lambda conn: ownership.acquire(conn, ownership.rebuild_lease("taken"), 0, "somebody", 30))
    with pytest.raises(NotAllRebuilt, match="taken is being rebuilt already") as raised:
        rebuild_together(
            [sibling("taken"), sibling("checked", broken), sibling("cancelled"), TOY], lab.stores, lab.log,
            cancel=lambda name: name == "cancelled", batch=7,
        )  # fmt: skip
    assert {name: generation.number for name, generation in raised.value.built.items()} == {"toy": 2}
    assert {name: type(error) for name, error in raised.value.failures.items()} == {
        "taken": Refused, "checked": CheckFailed, "cancelled": Cancelled,
    }  # fmt: skip
    assert states(lab) == {
        "cancelled__g1": "cancelled", "checked__g1": "active", "checked__g2": "failed", "toy__g1": "retired",
        "toy__g2": "active",
    }  # fmt: skip
    assert lab.rows("toy__g2") == lab.rows("toy__g1")
    assert verify(TOY, lab.stores, lab.log).equal


def test_one_that_is_cancelled_leaves_the_processes_to_the_others(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sealed, so that they find themselves fenced; its store is dropped when they have ended."""
    monkeypatch.setattr("projections.rebuilding.rebuild_together.WORTH_PROCESSES", 10)
    fill(lab, 100)
    with pytest.raises(NotAllRebuilt) as raised:
        rebuild_together([TOY, OTHER], lab.stores, lab.log, cancel=lambda name: name == "other", processes=2, batch=5)
    assert list(raised.value.built) == ["toy"]
    assert isinstance(raised.value.failures["other"], Cancelled)
    assert states(lab) == {"toy__g1": "active", "other__g1": "cancelled"}
    assert lab.rows("toy__g1") == lab.rows(rebuild(TOY, lab.stores, lab.log, processes=1).name)


def test_one_that_cannot_go_on_for_now_is_continued_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes try it again and leave it; the builder meets its error, and builds the others."""
    monkeypatch.setattr("projections.rebuilding.rebuild_together.WORTH_PROCESSES", 10)
    lab = lab_in(tmp_path)
    lab.archive(*(note(f"e{i}", "t", "a", i) for i in range(20)))
    with pytest.raises(NotAllRebuilt, match="no space left") as raised:
        rebuild_together([ILL, TOY], lab.stores, lab.log, processes=1, batch=7)
    assert list(raised.value.built) == ["toy"]
    assert isinstance(raised.value.failures["ill"], Transient)
    assert states(lab) == {"toy__g1": "active", "ill__g1": "building"}
    assert lab.rows("toy__g1")["tallies"][0][2] == 20
    assert rebuild(sibling("ill"), lab.stores, lab.log).number == 2, "mended code begins anew"
    assert states(lab)["ill__g1"] == "failed"
    lab.log.close()


@pytest.mark.parametrize("worth_processes", [10, 1_000_000])
def test_read_models_at_different_places_meet_and_go_on_together(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, worth_processes: int
) -> None:
    """The builder of one died half-way; the other one begins."""
    monkeypatch.setattr("projections.rebuilding.rebuild_together.WORTH_PROCESSES", worth_processes)
    fill(lab, 120)
    begun = lab.log.write_now(lambda conn: generations.create(conn, TOY))
    store = create_store(TOY, lab.stores, lab.log, begun.name)
    for partition in range(PARTITIONS):
        folder = PartitionFolder.take_over(store, ArchiveSource(lab.log), partition, "dead", batch=3 + partition)
        folder.step()
    store.db.close()
    built = rebuild_together([TOY, OTHER], lab.stores, lab.log, batch=11, processes=2)
    assert built["toy"].name == begun.name
    assert lab.rows(built["toy"].name) == lab.rows(built["other"].name)
    assert verify(TOY, lab.stores, lab.log).equal


def test_a_rebuild_that_lost_its_lease_neither_goes_on_nor_drops_what_another_one_builds(lab: Lab) -> None:
    fill(lab)
    lease = ownership.rebuild_lease("toy")

    def stolen() -> bool:
        lab.log.write_now(lambda conn: ownership.release(conn, lease, 0, owner_of(conn, lease)))
        lab.log.write_now(lambda conn: ownership.acquire(conn, lease, 0, "thief", 60))
        return True

    with pytest.raises(Cancelled):
        rebuild(TOY, lab.stores, lab.log, cancel=stolen)
    assert states(lab) == {"toy__g1": "building"}, "the thief's, not ours to drop"
    assert lab.rows("toy__g1")["tallies"]

    def renewed() -> bool:
        time.sleep(0.05)
        return False

    lab.log.write_now(lambda conn: ownership.release(conn, lease, 0, "thief"))
    with pytest.raises(Fenced, match="another process"):
        rebuild(
            TOY, lab.stores, lab.log, cancel=renewed, progress=lambda told: steal(lab, lease), batch=1, lease_ttl_s=0.4
        )
    assert states(lab) == {"toy__g1": "building"}


def owner_of(conn: Connection, lease: str) -> str:
    return str(conn.execute(select(leases.c.owner).where(leases.c.name == lease)).scalar_one())


def steal(lab: Lab, lease: str) -> None:
    lab.log.write_now(lambda conn: conn.execute(update(leases).where(leases.c.name == lease).values(owner="thief")))


# -- the rate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worth_processes", [10, 1_000_000])
def test_a_limit_holds_over_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth_processes: int
) -> None:
    monkeypatch.setattr("projections.rebuilding.rebuild_together.WORTH_PROCESSES", worth_processes)
    lab = lab_in(tmp_path)
    fill(lab, 400)
    began = time.monotonic()
    built = rebuild_together([TOY, OTHER], lab.stores, lab.log, processes=2, max_events_per_s=300)
    assert time.monotonic() - began > 402 / 300
    assert lab.rows(built["toy"].name) == lab.rows(built["other"].name)
    lab.log.close()


def test_a_slow_rebuild_is_cancelled_at_once(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    fill(lab, 200)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        rebuild(TOY, lab.stores, lab.log, cancel=lambda: time.monotonic() - began > 1, max_events_per_s=1)
    assert time.monotonic() - began < 60, "200 s would be the limit's own pace"
    lab.log.close()


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: float) -> None:
    lab = lab_in(tmp_path)
    with pytest.raises(Refused, match="above 0"):
        rebuild(TOY, lab.stores, lab.log, max_events_per_s=limit)
    assert states(lab) == {}
    lab.log.close()


BUILDER = """
import sys
import projections.rebuilding.rebuild_together
from events.database import Stores
from tests.contracts.engine_lab import TOY
from tests.contracts.test_rebuild_together import OTHER

projections.rebuilding.rebuild_together.WORTH_PROCESSES = 10
stores = Stores(sys.argv[1])
print("ready", flush=True)
projections.rebuilding.rebuild_together.rebuild_together(
    [TOY, OTHER], stores, stores.log(), batch=5, processes=2, max_events_per_s=200, lease_ttl_s=1.0,
    progress=lambda name, told: print(told.done, flush=True),
)
"""


def test_a_limited_rebuild_in_processes_is_continued_when_it_was_killed(tmp_path: Path) -> None:
    """Its processes end by themselves, and hand over what they have."""
    lab = lab_in(tmp_path)
    fill(lab, 1000)
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDER, lab.stores.url],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while int(process.stdout.readline()) < 100:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    begun = {g.projection: g.number for g in lab.log.read_now(generations.list_all)}
    for name, number in begun.items():
        db = lab.stores.generation(f"{name}__g{number}")
        while any(db.read_now(lambda conn: conn.execute(select(engine_tables.checkpoints.c.owner)).scalars().all())):
            time.sleep(0.1)
        db.close()
        lease = ownership.rebuild_lease(name)
        while lab.log.read_now(lambda conn, lease=lease: ownership.is_held(conn, lease)):  # type: ignore[misc]
            time.sleep(0.1)
    built = rebuild_together([TOY, OTHER], lab.stores, lab.log, verify=True, processes=1)
    assert {name: generation.number for name, generation in built.items()} == begun
    assert lab.rows(built["toy"].name) == lab.rows(built["other"].name)
    lab.log.close()


# -- verify -----------------------------------------------------------------------------------------------------------


def test_a_check_can_be_cancelled_and_leaves_nothing_behind(lab: Lab) -> None:
    fill(lab)
    rebuild(TOY, lab.stores, lab.log)
    before = lab.rows("toy__g1")
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)

    with pytest.raises(Cancelled, match="changed nothing"):
        verify(TOY, lab.stores, lab.log, batch=5, progress=stop, cancel=lambda: bool(seen))
    assert len(seen) == 1
    assert scratches(lab) == []
    assert lab.rows("toy__g1") == before
    assert verify(TOY, lab.stores, lab.log).equal


def scratches(lab: Lab) -> list[str]:
    if lab.stores.dialect == "sqlite":
        return [path.name for path in lab.stores.directory.glob("*scratch*")]
    return lab.log.read_now(lambda conn: [name for name in inspect(conn).get_schema_names() if "scratch" in name])


DEADLY = """
import sys
from events.database import Stores
from projections.rebuilding.rebuild import rebuild
from projections.rebuilding.verify import verify
from tests.contracts.engine_lab import TOY

stores = Stores(sys.argv[1])
log = stores.log()
print(rebuild(TOY, stores, log, verify=True).name, verify(TOY, stores, log).equal)
log.close()
"""


def test_what_kills_and_was_discarded_is_rebuilt_and_checked_without_a_death(tmp_path: Path) -> None:
    """C7, after somebody discarded the event: a small log is folded in the builder's own process, which lives on."""
    lab = lab_in(tmp_path)
    events = [note(f"e{i}", f"t{i % 3}", "die" if i == 4 else f"n{i % 2}", i) for i in range(20)]
    lab.archive(*events[:10], discard("d4", "t1", "e4"), *events[10:])
    harmless = rebuild(TOY, lab.stores, lab.log)
    done = subprocess.run(
        [sys.executable, "-c", DEADLY, lab.stores.url],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TOY_DIES": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "toy__g2 True\n", done.stderr
    assert lab.rows("toy__g2") == lab.rows(harmless.name)
    lab.log.close()
