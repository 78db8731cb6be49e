"""Reads of settlements: what a run left behind, and what the next context of a session starts from."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from events.keys import session_key, task_key
from projections.bounds import short
from projections.queries.rows import Document, Query, of_run, pick, position
from projections.settlements import SESSIONS, SETTLED_RUNS, SETTLEMENTS

_LATEST = Query(SESSIONS)
_PRODUCTS = ("session_state", "memories", "reflections", "learnings", "evidence")
_SHOWN = (
    "version", "status", "by", "reason", "detail", "model", "agent", "user", "session", "task", "event_id", "time",
)  # fmt: skip


def settlement_of_run(conn: Connection, org: str, run: str) -> Document | None:
    """The active settlement of a run, with its former versions under ``history``; None when it has none."""
    rows = of_run(conn, SETTLEMENTS, org, short(run))
    if not rows:
        return None
    rows.sort(key=lambda row: row["version"])
    active = rows[-1]
    counts = next(iter(of_run(conn, SETTLED_RUNS, org, short(run))), None)
    tried = pick(counts, "attempts", "tokens_in", "tokens_out", "errors", "repeats") if counts else {}
    return {**_settlement(active), "attempted": tried, "history": [_settlement(row) for row in rows[:-1]]}


def session_document(conn: Connection, org: str, session: str) -> Document | None:
    """The session's latest state, the only history source of its next context; None when no run of it was settled.

    ``stale`` tells that runs ended since without notes of their own; ``evidence_since`` is what is known of those.
    """
    return _session(conn, org, session_key(session))


def task_session_document(conn: Connection, org: str, task: str) -> Document | None:
    """The same for the runs of a task without a session."""
    return _session(conn, org, task_key(task))


def degraded_rate(conn: Connection, org: str) -> Document:
    """How many runs of an org are settled, and how many of those without a model's notes."""
    c = SETTLEMENTS.c
    query = select(c.degraded, func.count()).where(c.org == org, c.status == "active").group_by(c.degraded)
    counts = {bool(degraded): number for degraded, number in conn.execute(query)}
    total = sum(counts.values())
    return {"settled": total, "degraded": counts.get(True, 0), "rate": counts.get(True, 0) / total if total else 0.0}


def _session(conn: Connection, org: str, key: str) -> Document | None:
    row = _LATEST.first(conn, org, key)
    if row is None:
        return None
    return {
        **pick(row, "session", "run", "version", "time", "agent", "user"),
        "state": row["state"],
        "stale": row["stale"],
        "evidence_since": [
            {name: value for name, value in item.items() if name != "rank"} for item in row["evidence_since"] or []
        ],
        "settled_runs": row["settled"],
    }


def _settlement(row: Document) -> Document:
    return {
        "run": row["run_id"],
        **pick(row, *_SHOWN),
        "interrupted": row["interrupted"],
        "degraded": row["degraded"],
        **({"degraded_reason": row["degraded_reason"]} if row["degraded"] else {}),
        **{name: row[name] for name in _PRODUCTS if row[name] is not None},
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "attempts": row["attempts"],
        "position": position(row),
    }
