"""Reads of what went fatally wrong in a scope: notices, and those that have become constraints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache, partial

from sqlalchemy import Connection, select

from projections.belief.tables import EXPERIENCES, NOTICES
from projections.belief.trauma import contexts_left, last_met
from projections.belief.words import constraint_words, notice_words
from projections.queries.confidence import DEFAULT_RULES, BeliefRules
from projections.queries.rows import Document, many, pick

LOOKED_AT = 256
"""Latest runs of a scope that are looked at for counter-evidence."""
SHOWN_RUNS = 20
"""Latest runs that a notice names, each with the events that tell of it."""


def notices_of(
    conn: Connection, org: str, scope: str, *, now: datetime | None = None, rules: BeliefRules = DEFAULT_RULES
) -> list[Document]:
    """Each causal pattern that ended a run of a scope, once, the most widespread first.

    ``standing`` is ``constraint`` where the pattern constrains (``projections.belief.trauma``), else ``notice``;
    ``notice`` says which in words. ``contexts`` counts the distinct ones it was met in, ``contexts_left`` those that no
    counter-evidence has taken away, ``met`` the runs, of which ``runs`` names the latest. What is dated after ``now``
    (None: everything counts) is not there yet.
    """
    patterns: dict[str, list[Document]] = defaultdict(list)
    until = () if now is None else (NOTICES.c.time <= now.astimezone(UTC).isoformat(),)
    for row in many(conn, NOTICES, org, scope, *until, order=(NOTICES.c.pattern, NOTICES.c.time)):
        patterns[row["pattern"]].append(row)
    runs = cache(partial(_latest_runs, conn, org, scope, now))  # read once, and only where a pattern may constrain
    notices = [_notice(rows, runs, rules) for rows in patterns.values()]
    return sorted(notices, key=lambda notice: (-notice["contexts"], notice.get("tool", ""), notice["pattern"]))


def constraints_among(notices: Iterable[Document]) -> dict[str, str]:
    """For each tool that a pattern constrains, the constraint that was met in most contexts, in words."""
    found: dict[str, str] = {}
    for notice in notices:
        if notice["standing"] == "constraint" and "tool" in notice:
            found.setdefault(notice["tool"], notice["notice"])
    return found


def _notice(rows: list[Document], runs: Callable[[], list[Document]], rules: BeliefRules) -> Document:
    last, met, shown = rows[-1], last_met(rows), rows[-SHOWN_RUNS:]
    left = len(met)
    if left >= rules.constraint_contexts and last["tool"]:
        since = min(met.values())
        later = [run for run in runs() if run["time"] > since]
        left = contexts_left(met, last["tool"], later, rules.softening_successes)
    constrains = left >= rules.constraint_contexts
    words = (
        constraint_words(last["tool"], last["cause"], left) if constrains else notice_words(last["tool"], last["cause"])
    )
    return {
        **pick(last, "pattern", "tool", "cause"),
        "standing": "constraint" if constrains else "notice",
        "notice": words,
        "contexts": len(met),
        "contexts_left": left,
        "count": sum(sum((row["contexts"] or {}).values()) for row in rows),
        "met": len(rows),
        "runs": [row["run"] for row in shown],
        "because": [id_ for row in shown for id_ in (*(row["because"] or ()), row["event_id"])],
        "last_time": last["time"],
    }


def _latest_runs(conn: Connection, org: str, scope: str, now: datetime | None) -> list[Document]:
    own = EXPERIENCES.c
    query = select(own.time, own.counts).where(own.org == org, own.key == scope)
    if now is not None:
        query = query.where(own.time <= now.astimezone(UTC).isoformat())
    rows = conn.execute(query.order_by(own.time.desc(), own.run).limit(LOOKED_AT))
    return [{"time": time, "counts": counts} for time, counts in rows]
