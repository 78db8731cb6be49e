"""All that a scope holds at once: evidence of its beliefs, and what of runs belongs to it, notes and settlements.

A run is its user's, if it names one; else its agent's; else the organisation's. So nothing that a user's run wrote is
in a read of an agent's scope, whoever wrote it.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import ColumnElement, Connection, Table, bindparam, or_, select

from projections.belief.tables import BELIEFS, EVIDENCE, GROUNDS
from projections.queries.rows import Document, many, pick
from projections.settlements import SETTLEMENTS
from projections.task.tables import NOTES, RUNS

_EVIDENCE = ("source", "kind", "run", "counts", "because", "detail", "by", "time", "event_id")
_NOTE = ("content", "version", "category", "ttl_s", "written_at", "source", "run")
_SETTLEMENT = (
    "task", "session", "reason", "degraded", "session_state", "reflections", "learnings", "evidence", "time",
)  # fmt: skip

_LATEST = (GROUNDS.c.org == BELIEFS.c.org) & (GROUNDS.c.key == BELIEFS.c.key) & (GROUNDS.c.belief == BELIEFS.c.belief)
_ELSEWHERE = (
    select(GROUNDS.c.belief, GROUNDS.c.elsewhere)
    .join(BELIEFS, _LATEST & (GROUNDS.c.event_id == BELIEFS.c.proposed_id))
    .where(GROUNDS.c.org == bindparam("of_org"), GROUNDS.c.key == bindparam("of_key"))
    .order_by(GROUNDS.c.belief)
)
"""Evidence from another place that the last proposals of beliefs came with."""


def evidence_of_scope(conn: Connection, org: str, scope: str, most: int) -> dict[str, list[Document]]:
    """What each belief of a scope stands on, by its key: its latest ``most`` pieces here, then those from elsewhere."""
    found: dict[str, list[Document]] = defaultdict(list)
    latest_first = (EVIDENCE.c.belief, EVIDENCE.c.time.desc(), EVIDENCE.c.source.desc())
    for row in many(conn, EVIDENCE, org, scope, order=latest_first):
        if len(of := found[row["belief"]]) < most:
            of.append(pick(row, *_EVIDENCE))
    for belief, elsewhere in conn.execute(_ELSEWHERE, {"of_org": org, "of_key": scope}):
        found[belief] += elsewhere or []
    return found


def notes_of_scope(conn: Connection, org: str, scope: str) -> list[Document]:
    """Notes that runs of a scope wrote, each with its ``task``, by task and name."""
    same = (NOTES.c.org == RUNS.c.org) & (NOTES.c.key == RUNS.c.key)
    written = or_(NOTES.c.run == RUNS.c.run, NOTES.c.run == RUNS.c.full)
    columns = (NOTES.c.key, NOTES.c.note, NOTES.c.full, *(NOTES.c[name] for name in _NOTE))
    query = select(*columns).join(RUNS, same & written).where(RUNS.c.org == org, *_whose(RUNS, scope))
    rows = conn.execute(query.order_by(NOTES.c.key, NOTES.c.note)).mappings()
    return [
        {"task": row["key"].removeprefix("task/"), "note": row["full"] or row["note"], **pick(dict(row), *_NOTE)}
        for row in rows
    ]


def settlements_of_scope(conn: Connection, org: str, scope: str) -> list[Document]:
    """The active settlements of a scope's runs, by run."""
    of = SETTLEMENTS.c
    columns = (of.run_id, *(of[name] for name in _SETTLEMENT))
    query = select(*columns).where(of.org == org, of.status == "active", *_whose(SETTLEMENTS, scope))
    rows = conn.execute(query.order_by(of.run, of.key)).mappings()
    return [{"run": row["run_id"], **pick(dict(row), *_SETTLEMENT)} for row in rows]


def _whose(table: Table, scope: str) -> tuple[ColumnElement[bool], ...]:
    level, _, name = scope.partition("/")
    if level == "user":
        return (table.c.user == name,)
    return table.c.user == "", table.c.agent == (name if level == "agent" else "")
