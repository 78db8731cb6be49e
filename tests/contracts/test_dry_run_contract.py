"""The dry run of a rebuild over both stores: which rows would change, and that nothing does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Text, update

from events.errors import Refused
from events.event import Recorded
from events.types.thought import NoteWritten
from projections import generations
from projections.engine import ownership
from projections.engine.birth import create_store
from projections.projection import Json, Projection, Put, Rows, read_model_table
from projections.rebuilding.diff import FieldDiff, TableDiff, compare
from projections.rebuilding.dry_run import DryRun, dry_run
from projections.rebuilding.progress import Cancelled
from projections.rebuilding.scope import Scope
from projections.rebuilding.scratch import MARK, drop_leftovers, scratch_store
from tests.contracts.engine_lab import NOTES, TALLIES, TOY, Lab, apply, discard, dump, event, lab_in, note
from tests.contracts.test_rebuild_contract import fold_active
from tests.instance import until

EVERYTHING = Scope()


def tables(run: DryRun) -> dict[str, TableDiff]:
    return {table.table: table for table in run.diff.tables}


def counts(table: TableDiff) -> tuple[int, int, int]:
    return table.added, table.changed, table.removed


def active_state(lab: Lab) -> tuple[Any, ...]:
    """Everything that a dry run may not change."""
    db = lab.stores.generation("toy__g1")
    try:
        return dump(db), lab.log.read_now(generations.list_all), lab.stores.find_generations("toy")
    finally:
        db.close()


def of_other_code(recorded: Recorded, rows: Rows) -> Any:
    """Notes named n0 are left out, n1 are shouted, each n2 gets a twin; a note 9 cannot be folded."""
    for change in apply(recorded, rows):
        if not isinstance(change, Put) or change.table != "notes":
            yield change
        elif change.row["name"] == "n1":
            yield Put("notes", {**change.row, "content": "LOUD"})
        elif change.row["name"] == "n2":
            yield change
            yield Put("notes", {**change.row, "name": "twin"})
    if recorded.event.id == "e9":
        raise ValueError("nine is not liked")


def test_without_a_change_nothing_would_change(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 5}", "poison" if i == 20 else f"n{i % 3}", i) for i in range(60)))
    fold_active(lab)
    before = active_state(lab)
    told: list[tuple[int, int]] = []
    run = dry_run(TOY, lab.stores, lab.log, batch=7, told=lambda done, total: told.append((done, total)))
    assert not run.diff.differs and run.current_code
    assert (run.events, told[-1], run.generation) == (60, (60, 60), 1)
    assert {table.table for table in run.diff.tables} == {"tallies", "notes", "calls", "dead_letters"}
    assert tables(run)["dead_letters"].new_rows >= 1
    assert active_state(lab) == before


def test_a_change_of_code_is_told_row_by_row(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", "t", f"n{i % 3}", {"number": i}) for i in range(12)))
    fold_active(lab)
    before = active_state(lab)
    changed = replace(TOY, version=2, apply=of_other_code)
    run = dry_run(changed, lab.stores, lab.log)
    assert not run.current_code and run.diff.differs
    assert counts(tables(run)["notes"]) == (1, 2, 1)
    first = {(row.table, row.key[-1]): row for row in run.diff.first}
    assert (first["notes", "n0"].change, first["notes", "n1"].change, first["notes", "twin"].change) == (
        "removed", "changed", "added",
    )  # fmt: skip
    (content, *_) = [field for field in first["notes", "n1"].fields if field.column == "content"]
    assert (content.live, content.new) == ({"number": 10}, "LOUD")
    assert "nine is not liked" in str(next(row for row in run.diff.first if row.table == "dead_letters"))
    # three events wait behind the ninth, or are it
    assert counts(tables(run)["dead_letters"]) == (3, 0, 0)
    assert active_state(lab) == before
    document = run.as_dict()
    assert document["differs"] and document["tables"][0].keys() >= {"table", "added", "changed", "removed"}


def changed_tables() -> tuple[Any, ...]:
    metadata = MetaData()
    tallies = read_model_table(
        metadata, "tallies", Column("events", Text), Column("total", TALLIES.c.total.type), Column("count", BigInteger)
    )
    notes = read_model_table(
        metadata, "notes", Column("version", BigInteger, primary_key=True), Column("content", Json)
    )
    seen = read_model_table(metadata, "seen", Column("id", Text, primary_key=True))
    return tallies, notes, seen


def of_other_tables(recorded: Recorded, rows: Rows) -> Any:
    old = rows.get("tallies")
    total = (old["total"] if old else 0.0) * 0.5 + len(recorded.event.data)
    yield Put("tallies", {"events": "many", "total": total, "count": 1})
    yield Put("notes", {"version": 1})
    yield Put("seen", {"id": recorded.event.id})


def test_tables_of_another_shape_are_compared_where_they_can_be(lab: Lab) -> None:
    lab.archive(
        note("e1", "t", "a"), note("e2", "t", "b"), event("tool.called", "e3", "t", {"call_id": "c", "name": "x"})
    )
    fold_active(lab)
    other = Projection("toy", 2, changed_tables(), TOY.handles, of_other_tables)
    found = tables(dry_run(other, lab.stores, lab.log))
    assert (found["seen"].state, found["seen"].added, found["calls"].state, found["calls"].removed) == (
        "new", 3, "gone", 1,
    )  # fmt: skip
    assert (found["notes"].state, found["notes"].live_rows, found["notes"].new_rows) == ("rekeyed", 2, 1)
    tallies = found["tallies"]
    assert (tallies.columns_new, tallies.columns_gone) == (["count"], ["even", "last", "recent"])
    assert [one.column for one in tallies.columns_retyped] == ["events"]
    # the one column that both have in one form is equal
    assert (tallies.state, counts(tallies), tallies.differs) == ("compared", (0, 0, 0), True)


def test_what_was_renamed_is_compared_under_its_new_name(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i}", f"n{i % 2}", {"number": i}) for i in range(4)))
    fold_active(lab)
    notes = read_model_table(
        MetaData(), "remarks",
        Column("title", Text, primary_key=True, info={"was": ("heading", "name")}),
        Column("text", Json, info={"was": "content"}), Column("version", BigInteger), was=("jottings", "notes"),
    )  # fmt: skip

    def renamed(recorded: Recorded, rows: Rows) -> Any:
        assert isinstance(recorded.payload, NoteWritten)
        text = "other" if recorded.event.id == "e3" else recorded.payload.content
        yield Put("remarks", {"title": recorded.payload.key, "text": text, "version": 1})

    found = dry_run(Projection("toy", 2, (notes,), frozenset({"note.written"}), renamed), lab.stores, lab.log).diff
    remarks = next(table for table in found.tables if table.table == "remarks")
    assert (remarks.was, remarks.state, counts(remarks)) == ("notes", "compared", (0, 1, 0))
    assert {(one.column, one.was) for one in remarks.columns_renamed} == {("title", "name"), ("text", "content")}
    assert "notes" not in {table.table for table in found.tables}
    (row,) = [row for row in found.first if row.table == "remarks"]
    assert (row.key, row.fields) == (("default", "task/t3", "n1"), (FieldDiff("text", {"number": 3}, "other"),))


def test_keys_of_any_characters_are_put_in_one_order(lab: Lab) -> None:
    """Sorting by a language's rules, or by UTF-16, would take equal rows for added and removed ones."""
    names = ["a", "B", "ä", "Z", "z", "\uffff", "\U0001f600", "_", "é", "e\u0301", "10", "9", " x"]
    lab.archive(*(note(f"e{i}", f"task {name}", name) for i, name in enumerate(names)))
    fold_active(lab)
    run = dry_run(TOY, lab.stores, lab.log)
    assert not run.diff.differs
    assert tables(run)["notes"].new_rows == len(names)


def test_a_part_of_the_read_model_alone(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i % 3}", "n", i) for i in range(9)), note("x", "t0", "n", org="other"))
    fold_active(lab)
    changed = replace(TOY, version=2, apply=_louder)
    of_key = dry_run(changed, lab.stores, lab.log, scope=Scope("default", "task/t1"))
    assert [row.key for row in of_key.diff.first] == [("default", "task/t1", "n")]
    assert tables(of_key)["notes"].live_rows == 1
    of_tenant = dry_run(changed, lab.stores, lab.log, scope=Scope("other"))
    assert [row.key for row in of_tenant.diff.first] == [("other", "task/t0", "n")]
    with pytest.raises(Refused, match="name a tenant alone"):
        dry_run(replace(TOY, key=lambda recorded: "k"), lab.stores, lab.log, scope=Scope("default", "k"))


def _louder(recorded: Recorded, rows: Rows) -> Any:
    for change in apply(recorded, rows):
        yield (
            Put("notes", {**change.row, "content": "!"})
            if isinstance(change, Put) and change.table == "notes"
            else change
        )


def test_it_can_be_cancelled_and_leaves_nothing(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", "t", "n", i) for i in range(20)))
    fold_active(lab)
    before = active_state(lab)
    asked = iter([False, False, True])
    with pytest.raises(Cancelled):
        dry_run(TOY, lab.stores, lab.log, batch=5, cancel=lambda: next(asked))
    assert active_state(lab) == before


def test_what_the_log_takes_back_is_not_tried_again(lab: Lab) -> None:
    """It may have killed whoever folded it."""
    lab.archive(note("e1", "t", "n"), note("e2", "t", "poison"), note("e3", "t", "n"), discard("d", "t", "e2"))
    fold_active(lab)
    seen = []

    def watched(recorded: Recorded, rows: Rows) -> Any:
        seen.append(recorded.event.id)
        return apply(recorded, rows)

    assert not dry_run(replace(TOY, version=2, apply=watched), lab.stores, lab.log).diff.differs
    assert seen == ["e1", "e3"]


def test_it_leaves_room_for_the_rest(lab: Lab) -> None:
    lab.archive(*(note(f"e{i}", f"t{i}", "n", i) for i in range(60)))
    fold_active(lab)
    began = time.monotonic()
    assert dry_run(TOY, lab.stores, lab.log, max_events_per_s=100).events == 60
    assert time.monotonic() - began > 0.4


def test_before_there_is_a_generation_it_is_refused(lab: Lab) -> None:
    with pytest.raises(Refused, match="no generation yet"):
        dry_run(TOY, lab.stores, lab.log)


def test_what_is_shown_is_bounded_and_damage_is_found_however_large(lab: Lab) -> None:
    """More rows than a page; the first ones are shown, all are counted."""
    lab.archive(*(note(f"e{i}", f"t{i}", "n", i) for i in range(2_500)))
    fold_active(lab)
    db = lab.stores.generation("toy__g1")
    try:
        db.write_now(lambda conn: conn.execute(update(NOTES).where(NOTES.c.key > "task/t2").values(version=7)))
        run = dry_run(TOY, lab.stores, lab.log, first=3)
    finally:
        db.close()
    damaged = sum(f"task/t{i}" > "task/t2" for i in range(2_500))
    assert counts(tables(run)["notes"]) == (0, damaged, 0)
    assert len(run.diff.first) == 3


def test_the_scratch_of_one_that_died_is_dropped_by_the_next_and_no_other(lab: Lab) -> None:
    dead = create_store(TOY, lab.stores, lab.log, f"toy{MARK}dead")
    dead.db.close()
    with scratch_store(TOY, lab.stores, lab.log) as mine:
        assert mine.db.read_now(lambda conn: compare(conn, conn, TOY, EVERYTHING)).differs is False
        (name,) = lab.stores.find_generations(MARK)
        assert name != f"toy{MARK}dead"
        assert drop_leftovers(lab.stores, lab.log) == []
        assert lab.log.read_now(lambda conn: ownership.is_held(conn, f"scratch/{name}"))
    assert lab.stores.find_generations(MARK) == []


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from tests.contracts.engine_lab import TOY, lab_in
    from projections.rebuilding.dry_run import dry_run

    lab = lab_in(Path(sys.argv[1]))
    dry_run(TOY, lab.stores, lab.log, batch=5, told=lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_killed_dry_run_is_cleaned_up_after(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    lab.archive(*(note(f"e{i}", "t", "n", i) for i in range(20)))
    fold_active(lab)
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    done = subprocess.run(script, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(lab.stores.find_generations(MARK)) == 1
    # as time would do it
    lab.log.write_now(lambda conn: conn.exec_driver_sql("UPDATE leases SET expires_ms = 0 WHERE name LIKE 'scratch/%'"))
    assert not dry_run(TOY, lab.stores, lab.log).diff.differs
    assert until(lambda: lab.stores.find_generations(MARK) == [])
    lab.log.close()
