"""What a task keeps for good, and what only the latest of: checkpoints, late events, conflicts of notes."""

from __future__ import annotations

import orjson
import pytest
from sqlalchemy import Connection, create_engine

from projections.queries.checkpoints import find_checkpoint, latest_checkpoint, list_checkpoints
from projections.queries.tasks import task_document
from projections.task.tables import KEPT_CONFLICTS, KEPT_LATE, KEPT_MILESTONES, KEPT_SNAPSHOTS, METADATA
from projections.task_state import TASK_STATE
from tests.contracts.test_old_shapes import NOW
from tests.unit.fold_runner import Folded, event, fold, record

RAW = dict[str, object]


def saved(n: int, *, milestone: bool = False, **members: object) -> RAW:
    return event("checkpoint.saved", n, task="t", run="r", data={"data": {"n": n}, "milestone": milestone, **members})


def connection(folded: Folded) -> Connection:
    engine = create_engine("sqlite://")
    conn = engine.connect()
    METADATA.create_all(conn)
    folded.store(conn)
    return conn


def numbers(folded: Folded, ring: str) -> list[int]:
    return sorted(orjson.loads(row["data"])["n"] for row in folded.table("snapshots") if row["ring"] == ring)


def test_the_latest_checkpoints_and_milestones_are_kept() -> None:
    raws = [saved(n, milestone=n % 3 == 0) for n in range(500)]
    folded = fold(TASK_STATE, raws)
    plain, milestones = [n for n in range(500) if n % 3], list(range(0, 500, 3))
    assert numbers(folded, "recent") == plain[-KEPT_SNAPSHOTS:]
    assert numbers(folded, "milestone") == milestones[-KEPT_MILESTONES:]
    task = folded.one("tasks")
    assert (task["checkpoints"], task["milestones"]) == (500, len(milestones))


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_what_is_kept_does_not_depend_on_how_the_log_is_cut(batch: int) -> None:
    """Invariant 3: pruning is a function of counts."""
    recorded = record([saved(n, milestone=n % 4 == 1) for n in range(60)])
    assert Folded(TASK_STATE).fold(recorded, batch=batch).dump() == Folded(TASK_STATE).fold(recorded).dump()


@pytest.mark.parametrize("last", [100, 101])
def test_the_last_checkpoint_is_the_last_one_saved_of_whichever_kind(last: int) -> None:
    folded = fold(TASK_STATE, [saved(n, milestone=n % 2 == 0) for n in range(last)])
    with connection(folded) as conn:
        latest = latest_checkpoint(conn, "default", "task/t")
        assert latest is not None and latest["data"] == {"n": last - 1}
        kept = list_checkpoints(conn, "default", "t")
    assert kept is not None and len(kept) == KEPT_SNAPSHOTS + (last + 1) // 2
    assert [one["position"] for one in kept[:3]] == [f"1-{last - 1}", f"1-{last - 2}", f"1-{last - 3}"]
    assert not any("data" in one for one in kept)


def test_a_checkpoint_is_found_by_its_name_or_its_position() -> None:
    data = {"z": [1, 2.50, "é\u2028"], "a": {"y": None, "b": -0.0}}
    raws = [
        saved(0, checkpoint="k"), saved(1, checkpoint="k", data_version="7", data=data), saved(2),
        saved(3, checkpoint="1-2"),
    ]  # fmt: skip
    with connection(fold(TASK_STATE, raws)) as conn:
        newest = find_checkpoint(conn, "default", "t", "k")
        assert newest is not None and (newest["position"], newest["data_version"]) == ("1-1", "7")
        assert orjson.dumps(newest["data"]) == orjson.dumps(data)
        assert find_checkpoint(conn, "default", "t", "1-0")["data"] == {"n": 0}  # type: ignore[index]
        # a name goes before a position
        assert find_checkpoint(conn, "default", "t", "1-2")["data"] == {"n": 3}  # type: ignore[index]
        for name in ("1-9", "x", "1-", "-", "1-" + "9" * 30):
            assert find_checkpoint(conn, "default", "t", name) is None, name
        assert list_checkpoints(conn, "default", "unknown") is None
        assert list_checkpoints(conn, "other", "t") is None
        told = list_checkpoints(conn, "default", "t")
        assert told is not None and told[2]["size_bytes"] == len(orjson.dumps(data))


def test_a_task_that_saved_nothing_keeps_nothing() -> None:
    with connection(fold(TASK_STATE, [event("run.started", 0, task="t", run="r")])) as conn:
        assert list_checkpoints(conn, "default", "t") == []
        assert latest_checkpoint(conn, "default", "task/t") is None


def test_late_events_and_conflicts_are_bounded_and_their_counts_are_whole() -> None:
    """C15: a run that goes on after its end leaves its latest late events visible, however long it does."""
    raws = [event("run.terminated", 0, task="t", run="r", reason="interrupt")]
    raws += [event("step.started", n, task="t", run="r", step="s") for n in range(1, KEPT_LATE + 51)]
    raws += [
        event("note.written", n, task="t", run="r2", key="k", content=n, expected_version=9)
        for n in range(KEPT_LATE + 51, KEPT_LATE + 51 + KEPT_CONFLICTS + 20)
    ]
    folded = fold(TASK_STATE, raws)
    late, conflicts = folded.table("late_events"), folded.table("note_conflicts")
    assert (len(late), len(conflicts)) == (KEPT_LATE, KEPT_CONFLICTS)
    assert sorted(row["n"] for row in late) == list(range(51, KEPT_LATE + 51))
    task = folded.one("tasks")
    assert (task["late"], task["note_conflicts"]) == (KEPT_LATE + 50, KEPT_CONFLICTS + 20)
    with connection(folded) as conn:
        document = task_document(conn, "default", "t", now=NOW)
    assert document is not None
    assert [one["position"] for one in document["late"]][-1] == f"1-{KEPT_LATE + 50}"
    assert document["note_conflicts"][-1]["content"] == raws[-1]["data"]["content"]


def test_rows_of_rings_are_never_looked_up() -> None:
    """So the cost of saving does not depend on what is kept."""
    folded = fold(TASK_STATE, [saved(n, milestone=n % 5 == 0) for n in range(300)])
    assert folded.unnamed == 0
