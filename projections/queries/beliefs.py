"""Reads of beliefs: what a scope believes at a moment, and the evidence that each belief stands on."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from itertools import takewhile

from sqlalchemy import Connection

from projections.beliefs import BELIEFS, COUNTS, EVIDENCE, EXPERIENCES, NOTICES, SPEAKS_AGAINST, SUPPORTS
from projections.bounds import short
from projections.queries.confidence import DEFAULT_RULES, BeliefRules, Bucket, Standing, confidence_at, status_at
from projections.queries.rows import Document, many, one, pick


def beliefs_of(
    conn: Connection, org: str, scope: str, *, now: datetime, status: str = "", rules: BeliefRules = DEFAULT_RULES
) -> list[Document]:
    """Beliefs of a scope (``agent/coder``, ``user/u1``, ``org``) at a moment, the most confident first."""
    buckets = _buckets(conn, org, scope)
    contexts = _contexts(conn, org, scope)
    found = [
        _belief(row, buckets[short(row["belief"])], contexts.get(row["subject"], 0), now, rules)
        for row in many(conn, BELIEFS, org, scope)
    ]
    found.sort(key=lambda belief: (-belief["confidence"], belief["belief"]))
    return [belief for belief in found if status in ("", belief["status"])]


def belief_document(
    conn: Connection, org: str, scope: str, belief: str, *, now: datetime, rules: BeliefRules = DEFAULT_RULES
) -> Document | None:
    """One belief with its evidence, down to event ids; None when the scope has no such belief."""
    key = short(belief)
    row = one(conn, BELIEFS, org, scope, BELIEFS.c.belief == key)
    if row is None:
        return None
    buckets = _buckets(conn, org, scope, key)
    contexts = _contexts(conn, org, scope)
    evidence = many(conn, EVIDENCE, org, scope, EVIDENCE.c.belief == key, order=(EVIDENCE.c.time,))
    return {
        **_belief(row, buckets[key], contexts.get(row["subject"], 0), now, rules),
        "evidence": [pick(item, "kind", "run", "counts", "detail", "by", "time", "event_id") for item in evidence],
    }


def notices_of(conn: Connection, org: str, scope: str) -> list[Document]:
    """What went fatally wrong in a scope: each causal pattern once, with the runs it happened in."""
    patterns: dict[str, list[Document]] = defaultdict(list)
    for row in many(conn, NOTICES, org, scope, order=(NOTICES.c.pattern, NOTICES.c.time)):
        patterns[row["pattern"]].append(row)
    notices = [
        {
            **pick(rows[-1], "tool", "cause"),
            "notice": "here something went wrong; confirm first",
            "contexts": len(rows),
            "count": sum(row["count"] for row in rows),
            "runs": [row["run"] for row in rows],
            "last_time": rows[-1]["time"],
        }
        for rows in patterns.values()
    ]
    return sorted(notices, key=lambda notice: (-notice["contexts"], notice.get("tool", ""), notice.get("cause", "")))


def experience_of(conn: Connection, org: str, scope: str, run: str) -> Document | None:
    """What a scope keeps of a run; None when it was not derived, or not for this scope."""
    row = one(conn, EXPERIENCES, org, scope, EXPERIENCES.c.run == short(run))
    if row is None:
        return None
    shown = ("deriver_version", "nodes", "counts", "sheet", "event_id", "time")
    return {"run": row["run_id"], **pick(row, *shown)}


def _buckets(conn: Connection, org: str, scope: str, belief: str | None = None) -> dict[str, list[Bucket]]:
    buckets: dict[str, list[Bucket]] = defaultdict(list)
    where = () if belief is None else (COUNTS.c.belief == belief,)
    for row in many(conn, COUNTS, org, scope, *where):
        supports = sum(row[label] for label in SUPPORTS)
        against = sum(row[label] for label in SPEAKS_AGAINST)
        buckets[row["belief"]].append(Bucket(row["day"], supports, against))
    return buckets


def _contexts(conn: Connection, org: str, scope: str) -> dict[str, int]:
    """For each tool, in how many runs its most frequent fatal pattern occurred."""
    most: dict[str, int] = {}
    for notice in notices_of(conn, org, scope):
        tool = notice.get("tool", "")
        if tool:
            most[tool] = max(most.get(tool, 0), notice["contexts"])
    return most


def _belief(row: Document, buckets: list[Bucket], contexts: int, now: datetime, rules: BeliefRules) -> Document:
    confidence = confidence_at(buckets, now, prior=row["prior"], kind=row["kind"], rules=rules)
    standing = Standing(
        kind=row["kind"],
        retracted=row["retracted"],
        founded=row["proposed"] or row["evidence"] > 0,
        last_verified=row["last_verified"],
        failures_in_a_row=_trailing_failures(row),
        contexts=contexts,
    )
    return {
        "belief": row["belief"],
        "kind": row["kind"],
        "statement": row["statement"] or _statement(row, buckets),
        **pick(row, "trigger", "tendency", "last_verified", "retracted_because"),
        "confidence": confidence,
        "status": status_at(standing, confidence, now, rules),
        "supports": sum(bucket.supports for bucket in buckets),
        "against": sum(bucket.against for bucket in buckets),
        "failures_in_a_row": standing.failures_in_a_row,
    }


def _trailing_failures(row: Document) -> int:
    return len(list(takewhile(lambda verdict: verdict[1], reversed(row["recent"] or []))))


def _statement(row: Document, buckets: list[Bucket]) -> str:
    """Words for a belief that counts alone made."""
    if not row["subject"]:
        return ""
    worked = sum(bucket.supports for bucket in buckets)
    return f"{row['subject']} worked {worked} of {worked + sum(bucket.against for bucket in buckets)} times"
