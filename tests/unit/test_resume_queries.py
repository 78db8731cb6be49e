"""What a resume asks costs the same however many tasks there are: every statement goes by an index to its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event

from projections.queries.tasks import resume_document, task_document
from projections.task_state import TASK_STATE
from tests.unit.fold_runner import event as raw
from tests.unit.fold_runner import fold

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def everything() -> list[dict[str, Any]]:
    """A task with rows in every table, and a sub-agent."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("run.started", {"model": "m"}), ("plan.updated", {"steps": [{"id": "a"}]}), ("step.started", {"step": "a"}),
        ("tool.called", {"call_id": "c1", "name": "f"}), ("tool.returned", {"call_id": "c1"}),
        ("tool.called", {"call_id": "c2", "name": "f", "idempotency_key": "k"}), ("decision.made", {"chosen": "x"}),
        ("note.written", {"key": "n", "content": 1}),
        ("note.written", {"key": "n", "content": 1, "expected_version": 9}),
        ("blocker.raised", {"blocker": "b"}), ("approval.requested", {"approval": "p"}),
        ("artifact.created", {"name": "f"}), ("checkpoint.saved", {"data": {"data": 1}}), ("workbench.updated", {}),
    ]  # fmt: skip
    own = [raw(kind, n, task="t1", run="r1", **data) for n, (kind, data) in enumerate(kinds)]
    child = raw("run.started", 50, task="child", run="c1", parent_run="r1")
    return [*own, child, raw("step.started", 51, task="t1", run="r2", step="b")]


@pytest.fixture
def conn() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    TASK_STATE.tables[0].metadata.create_all(engine)
    with engine.connect() as connection:
        fold(TASK_STATE, everything()).store(connection)
        yield connection
    engine.dispose()


@contextmanager
def statements(conn: Connection) -> Iterator[list[tuple[str, Any]]]:
    """What is executed meanwhile, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    event.listen(conn, "before_cursor_execute", note)
    yield seen
    event.remove(conn, "before_cursor_execute", note)


def test_every_statement_goes_by_an_index_to_the_rows_of_its_key(conn: Connection) -> None:
    with statements(conn) as asked:
        resumed, shown = (read(conn, "default", "t1", now=NOW) for read in (resume_document, task_document))
    assert resumed is not None and resumed["children"] and shown is not None and shown["children"]
    assert len(asked) > 15
    for statement, parameters in asked:
        plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
        for *_, detail in plan:
            reads = re.match(r"(SCAN|SEARCH) \w+", detail)
            assert not reads or re.search(r"\(org=\? AND (key|parent)=\?", detail), (detail, statement)


def test_a_table_without_rows_of_the_task_is_not_asked(conn: Connection) -> None:
    fold(TASK_STATE, [raw("run.started", task="bare", run="r")]).store(conn)
    with statements(conn) as asked:
        assert resume_document(conn, "default", "bare", now=NOW) is not None
    tables = [re.search(r"FROM (\w+)", statement) for statement, _ in asked]
    assert [found[1] for found in tables if found] == ["tasks", "runs", "runs", "workbench"]
