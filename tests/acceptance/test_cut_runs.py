"""A run of every data set, cut after every tenth event, resumes to the state of the run that was never cut.

Every cut of every run is a task of its own: of an organisation for each form of the rest and each cut. All first parts
are folded and committed; then the owners are gone, and others go on from the stores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, select

from events.archive.store import archive_batch, watermark
from events.database import Stores
from events.door import admit
from events.event import Event, Position
from events.keys import partition_of
from projections.engine.folder import PartitionFolder
from projections.engine.source import ArchiveSource
from projections.engine.store import GenerationStore
from projections.queries.tasks import resume_document
from projections.task_state import TASK_STATE
from tests.acceptance.cut_runs import SETS, cuts, finished_steps, in_flight, progress, resumed, runs_of, task_of
from tests.chaos.workload import DATASETS, Run
from tests.contracts.engine_lab import PARTITIONS, Lab
from tests.soak import ALL

NOW = datetime(2026, 8, 1, tzinfo=UTC)
UNCUT = "uncut"
DIALOGUE = "message.added"
FORMS: Mapping[str, Callable[[Run, int], Run]] = {"plain": lambda run, at: run[at:], "resumed": resumed}

Owner = tuple[str, str]
"""(org, key)."""

OF_ATTEMPTS = frozenset(("runs", "late_events"))
"""Tables that tell of attempts, and of what came after an attempt was over, rather than of the task."""

SHARE = {"tau-bench-airline": 6, "relay": 9, "memorybank": 4}
"""Of so many runs of a set, by length, one is cut; all of them with REFOLD_CHAOS_ALL."""

SHOWN = 12
"""Cuts whose documents are looked at as well."""


class CutLab(Lab):
    """One log and one generation of task state. ``places`` tells which event of its task stands at a position."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Stores(f"sqlite:///{folder}"))
        self.places: dict[Owner, dict[Position, int]] = defaultdict(dict)
        self.open().create(PARTITIONS)

    def open(self) -> GenerationStore:
        """The generation, as a new process opens it."""
        return GenerationStore(TASK_STATE, self.stores.generation("task_state__cut"))

    def publish(self, events: Iterable[Event]) -> None:
        """Archive events, a batch a partition."""
        parts: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            parts[partition_of(event.org, event.key, PARTITIONS)].append(event)

        def work(conn: Connection) -> None:
            for partition, batch in parts.items():
                self._batch(conn, partition, batch)

        self.log.write_now(work)

    def _batch(self, conn: Connection, partition: int, events: list[Event]) -> None:
        self._first_epoch(conn, partition, watermark(conn, partition))
        mark = watermark(conn, partition)
        entries = [(Position(mark.epoch, mark.n + index), event) for index, event in enumerate(events, 1)]
        archive_batch(conn, partition, mark, entries, 1000)
        for position, event in entries:
            places = self.places[event.org, event.key]
            places[position] = len(places)

    def fold(self) -> None:
        """Owners that begin with nothing in memory fold all there is."""
        store = self.open()
        for partition in range(PARTITIONS):
            owner = PartitionFolder.take_over(store, ArchiveSource(self.log), partition, "a new process")
            while owner.step().read:
                pass
        store.db.close()


def of_org(run: Run, org: str) -> Iterator[Event]:
    for raw in run:
        yield admit(raw, org=org)


def rows_of(lab: CutLab) -> Mapping[Owner, list[tuple[str, Mapping[str, Any]]]]:
    """All rows by task, with their tables; positions replaced by which event of the task they are."""
    found: dict[Owner, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    store = lab.open()

    def work(conn: Connection) -> None:
        for table in TASK_STATE.tables:
            for row in conn.execute(select(table)).mappings():
                values = {str(name): value for name, value in row.items()}
                org, key = values.pop("org"), values.pop("key")
                for epoch in [name for name in values if name == "epoch" or name.endswith("_epoch")]:
                    if values[epoch]:
                        n = epoch.removesuffix("epoch") + "n"
                        values[n] = lab.places[org, key][Position(values[epoch], values[n])]
                if table.name == "workbench":
                    values |= tries(values, lab.places[org, key])
                found[org, key].append((str(table.name), values))

    store.db.read_now(work)
    store.db.close()
    return found


def tries(workbench: Mapping[str, Any], places: Mapping[Position, int]) -> dict[str, Any]:
    """What a workbench tells of tries, the positions of their calls replaced as others are."""
    return {
        "to_retry": [
            {**item, "asked": [places[Position(*asked)] for asked in item["asked"]]} if "asked" in item else item
            for item in workbench["to_retry"] or ()
        ],
        "came_through": [[effect, places[Position(*asked)]] for effect, *asked in workbench["came_through"] or ()],
    }


def exactly(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[bytes]:
    return sorted(orjson.dumps([table, row], option=orjson.OPT_SORT_KEYS) for table, row in rows)


def apart_from_attempts(rows: Iterable[tuple[str, Mapping[str, Any]]], waiting: Collection[str]) -> list[bytes]:
    """A judgement's ``digest`` is made of its run, too; and a late result says nothing of what is to be tried again."""
    kept = []
    for table, row in rows:
        if table in OF_ATTEMPTS:
            continue
        same = progress(row)
        if table == "feedback":
            del same["digest"]
        elif table == "workbench":
            del same["time"], same["came_through"]
            retries = [item for item in same["to_retry"] if item["call_id"] not in waiting]
            same["to_retry"] = [{name: told for name, told in item.items() if name != "asked"} for item in retries]
            if not any(same.values()):
                continue
        kept.append((table, same))
    return exactly(kept)


def resumes(lab: CutLab, tasks: Iterable[tuple[str, str]]) -> list[Any]:
    """What the next attempt at each of these (org, task) is shown."""
    store = lab.open()
    found = store.db.read_now(lambda conn: [resume_document(conn, org, task, now=NOW) for org, task in tasks])
    store.db.close()
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SETS)
def test_a_cut_run_resumes_to_the_same_state(tmp_path: Path, name: str) -> None:
    """In the plain form nothing at all differs, row for row; of two attempts, what ``MAY_DIFFER`` tells."""
    share = 1 if ALL else SHARE.get(name, 1)
    runs = sorted(runs_of(name), key=len)[share // 2 :: share]
    if not runs:
        pytest.skip(f"no data set {name} in {DATASETS}: set REFOLD_DATASETS")
    lab = CutLab(tmp_path)
    cut = [(run, at) for run in runs for at in cuts(run)]
    lab.publish(event for run, at in cut for form in FORMS for event in of_org(run[:at], f"{form}-{at}"))
    lab.fold()
    look_at_the_cut(lab, cut[:: len(cut) // SHOWN + 1])
    lab.publish(event for run in runs for event in of_org(run, UNCUT))
    lab.publish(
        event for run, at in cut for form, rest in FORMS.items() for event in of_org(rest(run, at), f"{form}-{at}")
    )
    lab.fold()
    rows = rows_of(lab)
    assert len({owner for owner in rows if owner[0] != UNCUT}) == len(FORMS) * len(cut)
    for run, at in cut:
        key = f"task/{task_of(run)}"
        whole, plain, two = rows[UNCUT, key], rows[f"plain-{at}", key], rows[f"resumed-{at}", key]
        assert exactly(plain) == exactly(whole), f"{key} cut after {at} events"
        waiting = in_flight(run[:at])
        assert apart_from_attempts(two, waiting) == apart_from_attempts(whole, waiting), f"{key} resumed after {at}"
    look_at_the_end(lab, cut[:: len(cut) // SHOWN + 1])


def look_at_the_cut(lab: CutLab, cut: list[tuple[Run, int]]) -> None:
    """What the next attempt is told: finished steps, calls in flight; the same when asked twice."""
    tasks = [(f"resumed-{at}", task_of(run)) for run, at in cut]
    shown = resumes(lab, tasks)
    assert shown == resumes(lab, tasks)
    for document, (run, at) in zip(shown, cut, strict=True):
        assert {step["step"] for step in document["finished_steps"]} == finished_steps(run[:at])
        assert {call["call_id"] for call in document["in_flight"]} == in_flight(run[:at])
        assert document["next_attempt"] == 2


def look_at_the_end(lab: CutLab, cut: list[tuple[Run, int]]) -> None:
    """The documents of a task that was cut are those of the uncut one."""
    whole = resumes(lab, [(UNCUT, task_of(run)) for run, _ in cut])
    for form in FORMS:
        assert progress(resumes(lab, [(f"{form}-{at}", task_of(run)) for run, at in cut])) == progress(whole)


@pytest.mark.parametrize("name", SETS)
def test_a_run_without_its_dialogue_makes_the_same_progress(tmp_path: Path, name: str) -> None:
    """A log from which every ``message.added`` is gone gives the same task, but for where in the log things stand."""
    share = 1 if ALL else 2 * SHARE.get(name, 1)
    runs = runs_of(name)[share // 2 :: share]
    if not runs:
        pytest.skip(f"no data set {name} in {DATASETS}: set REFOLD_DATASETS")
    assert name == "relay" or any(event["type"] == DIALOGUE for run in runs for event in run)
    lab = CutLab(tmp_path)
    lab.publish(event for run in runs for event in of_org(run, "whole"))
    lab.publish(
        event for run in runs for event in of_org([raw for raw in run if raw["type"] != DIALOGUE], "without dialogue")
    )
    lab.fold()
    rows = rows_of(lab)
    for run in runs:
        key = f"task/{task_of(run)}"
        assert anywhere(rows["without dialogue", key]) == anywhere(rows["whole", key]), key


def anywhere(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[bytes]:
    """The rows without positions."""
    kept = []
    for table, row in rows:
        same = {name: value for name, value in row.items() if name not in ("n", "came_through") and name[-2:] != "_n"}
        if table == "workbench":
            same["to_retry"] = [{**item, "asked": ()} for item in row["to_retry"]]
        kept.append((table, same))
    return exactly(kept)
