"""The parts of a task that its documents are made of, each read by one statement that is made once.

A table of which the task's own row counts no row is not asked at all: most tasks have rows in few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, literal_column, select

from projections.bounds import short
from projections.queries.rows import Document, Query, duration_s, pick, position, until
from projections.task import tables as t
from projections.task.costs import amounts
from projections.task.notes import VERIFY_AGAIN
from projections.task.retries import shown
from projections.task.status import DONE

MAX_HISTORY = 100
"""Latest decisions, results, conflicts, late events and children shown; the rows hold more of them."""

_TOTALS = (
    "events", "runs", "steps", "steps_done", "steps_open", "calls", "calls_in_flight", "calls_failed", "decisions",
    "artifacts", "notes", "note_conflicts", "checkpoints", "feedback", "tokens_in", "tokens_out", "late",
)  # fmt: skip

_CONFLICT = ("note", "expected_version", "found_version", "content", "run", "time")

_TASK = Query(t.TASKS)
_STEPS = Query(t.STEPS, order=(t.STEPS.c.place.is_(None), t.STEPS.c.place, t.STEPS.c.epoch, t.STEPS.c.n))
_RUNS = Query(t.RUNS, order=(t.RUNS.c.attempt, t.RUNS.c.epoch, t.RUNS.c.n))
_BLOCKERS = Query(t.BLOCKERS, order=(t.BLOCKERS.c.raised,))
_APPROVALS = Query(t.APPROVALS, order=(t.APPROVALS.c.requested,))
_ARTIFACTS = Query(t.ARTIFACTS)
_NOTES = Query(t.NOTES)
_WORKBENCH = Query(t.WORKBENCH)


def _latest(table: Any) -> Query:
    return Query(table, order=(table.c.epoch.desc(), table.c.n.desc()), limit=MAX_HISTORY)


_DECISIONS, _CONFLICTS, _LATE = map(_latest, (t.DECISIONS, t.NOTE_CONFLICTS, t.LATE_EVENTS))


@dataclass(frozen=True)
class Reading:
    """What a document is computed for beside its rows: the moment, and which categories of notes to verify again."""

    now: datetime
    verify: Collection[str] = VERIFY_AGAIN


class Parts:
    """One task on one snapshot. ``head`` is its own row: None when nothing is known of the task."""

    def __init__(self, conn: Connection, org: str, key: str) -> None:
        self._conn, self._org, self.key = conn, org, key
        self.head = self._first(_TASK)

    def _all(self, query: Query) -> list[Document]:
        return query.all(self._conn, self._org, self.key)

    def _first(self, query: Query) -> Document | None:
        return query.first(self._conn, self._org, self.key)

    def _counted(self, counts: str, query: Query) -> list[Document]:
        """Rows of a table that the head counts. Another shape of the head, which does not, is no reason not to look."""
        return self._all(query) if self.head is None or self.head[counts] != 0 else []

    def steps(self) -> list[Document]:
        """Planned steps in their order, then the others as they came."""
        return [_step(row) for row in self._counted("steps", _STEPS)]

    def runs(self) -> list[Document]:
        """All attempts, the latest last."""
        return [run_of(row) for row in self._counted("runs", _RUNS)]

    def children(self, runs: Iterable[Document]) -> list[Document]:
        """Tasks of sub-agents: those that a run of this task is a parent of, as far as they are folded by now.

        They lie in partitions of their own, so they are combined here, whichever of parent and child came first.
        """
        parents = [short(run["run"]) for run in runs]
        if not parents:
            return []
        of = {"of_org": self._org, "parents": parents}
        # two plain steps and not one join: it must take the index on parents whatever a store knows of its tables
        parent_of = {str(key): parent for key, parent in self._conn.execute(_CHILD_KEYS, of) if key != self.key}
        keys = sorted(parent_of)[:MAX_HISTORY]
        if not keys:
            return []
        found = self._conn.execute(_CHILDREN, {"of_org": self._org, "keys": keys}).mappings()
        latest = {str(row["key"]): {str(name): row[name] for name in row} for row in found}
        return [_child(latest[key] | {"parent_run": parent_of[key]}) for key in keys if key in latest]

    def workbench(self) -> Document | None:
        """What the current work has at hand; None when there is nothing."""
        row = self._first(_WORKBENCH)
        if row is None:
            return None
        sections = {name: row[name] or [] for name in ("observations", "preconditions", "requirements")}
        sections["to_retry"] = [shown(item) for item in row["to_retry"] or ()]
        if not any(sections.values()):
            return None
        return {**sections, **pick(row, "run", "time"), "position": position(row)}

    def world(self, reading: Reading) -> Document:
        """What the task waits for, what it made, what was decided and noted."""
        return {
            "blockers": [
                pick(row, "blocker", "description", "open", "raised", "cleared", "detail")
                for row in self._counted("blockers", _BLOCKERS)
            ],
            "approvals": [_approval(row) for row in self._counted("approvals", _APPROVALS)],
            "artifacts": [
                pick(row, "name", "uri", "kind", "digest", "size_bytes", "step", "version", "time")
                for row in self._counted("artifacts", _ARTIFACTS)
            ],
            "decisions": [
                pick(row, "question", "chosen", "alternatives", "rationale", "based_on", "time", "event_id")
                | {"position": position(row)}
                for row in self._counted("decisions", _DECISIONS)[::-1]
            ],
            "notes": [_note(row, reading) for row in self._counted("notes", _NOTES)],
            "note_conflicts": [
                {name: row[name] for name in _CONFLICT} | pick(row, "event_id")
                for row in self._counted("note_conflicts", _CONFLICTS)[::-1]
            ],
        }

    def late(self) -> list[Document]:
        """The latest events that came after their run's end."""
        return [
            pick(row, "event_id", "type", "run", "reason", "time") | {"position": position(row)}
            for row in self._counted("late", _LATE)[::-1]
        ]


_CHILD_KEYS = select(t.RUNS.c.key, t.RUNS.c.parent_run).where(
    t.RUNS.c.org == bindparam("of_org"),
    # a literal, or SQLite does not see that the partial index applies
    t.RUNS.c.parent != literal_column("''"),
    t.RUNS.c.parent.in_(bindparam("parents", expanding=True)),
)
_CHILDREN = (
    select(
        t.TASKS.c.key, t.TASKS.c.run, t.TASKS.c.attempt, t.TASKS.c.status, t.TASKS.c.goal, t.TASKS.c.agent,
        t.TASKS.c.detail, t.TASKS.c.last_time, t.RUNS.c.result,
    )
    .outerjoin(
        t.RUNS,
        and_(t.RUNS.c.org == t.TASKS.c.org, t.RUNS.c.key == t.TASKS.c.key, t.RUNS.c.attempt == t.TASKS.c.attempt),
    )
    .where(t.TASKS.c.org == bindparam("of_org"), t.TASKS.c.key.in_(bindparam("keys", expanding=True)))
)  # fmt: skip
"""The tasks of those keys, each with what its current run handed on."""


def head_of(task: str, head: Mapping[str, Any]) -> Document:
    """What every document of a task begins with."""
    names = ("status", "goal", "run", "attempt", "reason", "detail", "agent", "user", "session", "current_step")
    return {
        "task": task,
        **{name: head[name] for name in names},
        "totals": {**{name: head[name] for name in _TOTALS}, "cost": amounts(head["cost"])},
        "first_time": head["first_time"],
        "last_time": head["last_time"],
        "position": f"{head['epoch']}-{head['n']}",
    }


def planned(steps: Iterable[Document]) -> list[Document]:
    """The steps of the plan."""
    return [step for step in steps if step["place"] is not None]


def cursor_of(steps: Iterable[Document]) -> str | None:
    """The first planned step that is not done."""
    return next((step["step"] for step in steps if step["place"] is not None and step["status"] not in DONE), None)


def run_of(row: Document) -> Document:
    """One attempt."""
    shown = ("attempt", "parent_run", "goal", "mode", "model", "agent", "user", "session", "started", "ended", "reason")
    return {
        "run": row["run"],
        **pick(row, *shown, "outcome", "detail", "result", "budget", "last_time"),
        "over": row["over"],
        "interrupted": row["interrupted"],
        "provisional": row["provisional"],
        "settles": row["settles"],
        "digests": row["digests"] or {},
        "events": row["events"],
        "late": row["late"],
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "duration_s": duration_s(row["started"], row["ended"]),
    }


def call_of(row: Document, status: str) -> Document:
    """One call of a tool; ``status`` as the reader is to take it."""
    shown = ("arguments", "step", "idempotency_key", "called_at", "returned_at", "result", "error", "expected_s")
    return {
        "call_id": row["call_id"],
        "run": row["run_id"],
        "name": row["name"],
        "status": status,
        "side_effect": row["side_effect"],
        **pick(row, *shown),
        **({"late": True} if row["late"] else {}),
    }


def _step(row: Document) -> Document:
    shown = ("title", "summary", "result", "error", "started", "ended", "run")
    return {
        "step": row["step"],
        "status": row["status"],
        "place": row["place"],
        "attempts": row["attempts"],
        **pick(row, *shown),
        "duration_s": duration_s(row["started"], row["ended"]),
        **({"late": True} if row["late"] else {}),
    }


def _child(row: Document) -> Document:
    shown = ("run", "attempt", "parent_run", "status", "goal", "agent", "detail", "result", "last_time")
    return {"task": row["key"].removeprefix("task/"), **pick(row, *shown)}


def _approval(row: Document) -> Document:
    shown = ("approval", "action", "arguments", "versions", "approved", "by", "detail", "requested", "resolved", "run")
    return {**pick(row, *shown), "pending": row["open"]}


def _note(row: Document, reading: Reading) -> Document:
    """A note with what its reader must know before relying on it: until when it holds, and whether to verify it first.

    Moments and not ages, so that a document asked for twice is the same.
    """
    ends = None if row["ttl_s"] is None else until(row["written_at"], row["ttl_s"])
    stale = ends is not None and reading.now.astimezone(UTC) > ends
    return {
        **pick(row, "note", "version", "category", "ttl_s", "written_at", "source", "run"),
        "content": row["content"],
        **({"fresh_until": ends.isoformat().replace("+00:00", "Z")} if ends else {}),
        "stale": stale,
        "verify_again": stale or row["category"] in reading.verify,
        "conflicts": row["conflicts"],
    }
