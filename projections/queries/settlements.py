"""Reads of settlements: what a run left behind, and what the next context of a session starts from."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, exists, func, or_, select, true

from events.keys import session_key, task_key
from projections.bounds import short
from projections.queries.rows import Document, Query, many, of_run, pick, position
from projections.settlements import ENDED_RUNS, MAX_EVIDENCE_RUNS, MODEL_DAYS, SESSIONS, SETTLED_RUNS, SETTLEMENTS

_LATEST = Query(SESSIONS)
_OF_RUN = Query(SETTLEMENTS, SETTLEMENTS.c.run == bindparam("of_run"), SETTLEMENTS.c.version == bindparam("of_version"))
MAX_SETTLING = 20
"""Runs that are named as being settled, at most."""
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


def session_document(conn: Connection, org: str, session: str, user: str = "") -> Document | None:
    """The session's latest state, the only history source of its next context; None when no run of it has ended.

    Users may call their sessions alike: for a ``user``, the runs of all others count for nothing (DESIGN 1, 7).

    ``stale`` tells that runs ended since without notes of their own; ``evidence_since`` is what is known of those.
    ``settling`` are runs that have ended and are not settled yet: while there are some, the state is stale, too.
    """
    mine = (ENDED_RUNS.c.session == session) & (ENDED_RUNS.c.user.in_(("", user)) if user else true())
    return _session(conn, org, session_key(session), _unsettled(conn, org, mine), user)


def task_session_document(conn: Connection, org: str, task: str) -> Document | None:
    """The same for the runs of a task without a session."""
    key = task_key(task)
    settling = _unsettled(conn, org, (ENDED_RUNS.c.key == key) & (ENDED_RUNS.c.session == ""))
    return _session(conn, org, key, settling)


def tokens_of_day(conn: Connection, org: str, day: str) -> int:
    """Tokens that the backend's models took of an org on a day of UTC."""
    c = MODEL_DAYS.c
    return int(conn.execute(select(func.sum(c.tokens)).where(c.org == org, c.day == day)).scalar() or 0)


def settled_by_outcome(conn: Connection) -> dict[str, int]:
    """How many runs are settled, of all orgs: under ``""`` with notes, else by the reason that they have none.

    For admins.
    """
    c = SETTLEMENTS.c
    query = select(c.degraded_reason, func.count()).where(c.status == "active").group_by(c.degraded_reason)
    return {str(reason): int(number) for reason, number in conn.execute(query)}


def _unsettled(conn: Connection, org: str, whose: ColumnElement[bool]) -> list[Document]:
    """Ended runs without a settlement for the reason that they ended for: one of a lost run that lived is older."""
    ended, settled = ENDED_RUNS.c, SETTLEMENTS.c
    same = (settled.org == org, settled.run == ended.run, settled.task.in_((ended.task, "")))
    is_settled = exists().where(*same, or_(settled.by == "agent", settled.reason == ended.reason))
    columns = (ended.run_id, ended.reason, ended.task, ended.time)
    query = select(*columns).where(ended.org == org, whose, ~is_settled).order_by(ended.time, ended.run, ended.task)
    rows = conn.execute(query.limit(MAX_SETTLING))
    return [{"run": run, "reason": reason, "task": task, "time": time} for run, reason, task, time in rows]


def _session(conn: Connection, org: str, key: str, settling: list[Document], user: str = "") -> Document | None:
    row = _LATEST.first(conn, org, key)
    if row is not None and user and _is_shared(conn, org, key, user):
        row = _own(conn, org, key, user)
    if row is None:
        return _unknown(settling) if settling else None
    values = {"of_run": short(row["run"]), "of_version": row["version"]}
    of_run = _OF_RUN.first(conn, org, key, **values) if row["run"] else None
    return {
        **pick(row, "session", "run", "version", "time", "agent", "user"),
        **({"reason": of_run["reason"], "interrupted": of_run["interrupted"]} if of_run else {}),
        "state": row["state"],
        "stale": bool(row["stale"] or settling),
        "settling": settling,
        "evidence_since": [
            {name: value for name, value in item.items() if name != "rank"} for item in row["evidence_since"] or []
        ],
        "settled_runs": row["settled"],
    }


def _is_shared(conn: Connection, org: str, key: str, user: str) -> bool:
    c = SETTLEMENTS.c
    others = exists().where(c.org == org, c.key == key, c.user.not_in(("", user)))
    return bool(conn.execute(select(others)).scalar())


def _own(conn: Connection, org: str, key: str, user: str) -> Document | None:
    """The row of a session as the fold would have made it of one user's runs; None: none of those is settled."""
    c, ranks = SETTLEMENTS.c, SETTLED_RUNS.c
    query = select(ranks.run, ranks.rank).where(ranks.org == org, ranks.key == key)
    ranked = {run: rank for run, rank in conn.execute(query)}  # noqa: C416  a row is no tuple to mypy
    found = many(conn, SETTLEMENTS, org, key, c.status == "active", c.user.in_(("", user)))
    if not found:
        return None
    found.sort(key=lambda row: ranked[row["run"]])
    last = next((row for row in reversed(found) if not row["degraded"]), None)
    since = [row for row in found if last is None or ranked[row["run"]] > ranked[last["run"]]][-MAX_EVIDENCE_RUNS:]
    noted = last or dict.fromkeys(("run_id", "time"), "") | {"version": 0, "session_state": None, "run": ""}
    told = ("version", "reason", "interrupted", "evidence", "time")
    return {
        **{name: found[-1][name] for name in ("session", "agent", "user")},
        **{name: noted[name] for name in ("version", "time")},
        "run": noted["run_id"],
        "state": noted["session_state"],
        "stale": bool(since),
        "evidence_since": [
            {"run": row["run_id"], "degraded": row["degraded_reason"], **{name: row[name] for name in told}}
            for row in since
        ],
        "settled": len(found),
    }


def _unknown(settling: list[Document]) -> dict[str, Any]:
    """The document of a session of which only unsettled runs are known."""
    return {"state": None, "stale": True, "settling": settling, "evidence_since": [], "settled_runs": 0}


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
