"""Reads of memories: those of a scope at a moment, one with its history, and what became of proposals.

A name of a memory is unique in its scope; where several scopes of an org have one of the same name, a read must say
whose it wants.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from projections.bounds import short
from projections.memory.importance import expires_at, importance_at, status_at
from projections.memory.tables import CHANGES, MEMORIES, PROPOSALS
from projections.queries.rows import Document, many, one, pick

_SHOWN = (
    "kind", "memory_type", "content", "entity", "attribute", "confidence", "score", "tags", "source", "trust", "agent",
    "session", "task", "run", "proposal", "ttl_s", "superseded_by", "because", "created", "updated", "last_verified",
    "last_access", "event_id",
)  # fmt: skip


class Wanted(NamedTuple):
    """Which memories of a scope: of a status (empty: any but deleted), a kind, a tag, a session; empty: any."""

    status: str = "active"
    kind: str = ""
    tag: str = ""
    session: str = ""


_ACTIVE = Wanted()


def memories_of(conn: Connection, org: str, scope: str, *, now: datetime, wanted: Wanted = _ACTIVE) -> list[Document]:
    """Memories of a scope (``user/u1``, ``agent/coder``, ``org``), the most important first."""
    gone = MEMORIES.c.status == "deleted"
    where: list[ColumnElement[bool]] = [gone if wanted.status == "deleted" else ~gone]
    if wanted.kind:
        where.append(MEMORIES.c.kind == wanted.kind)
    if wanted.session:
        where.append(MEMORIES.c.session == wanted.session)
    found = [memory_of(row, scope, now) for row in many(conn, MEMORIES, org, scope, *where)]
    found = [one for one in found if wanted.status in ("", one["status"]) and wanted.tag in ("", *one.get("tags", ()))]
    return sorted(found, key=lambda memory: (-memory["importance"], memory["memory"]))


def scopes_with(conn: Connection, org: str, memory: str) -> list[str]:
    """The scopes of an org that have a memory of this name."""
    query = select(MEMORIES.c.key).where(MEMORIES.c.org == org, MEMORIES.c.memory == short(memory))
    return list(conn.execute(query.order_by(MEMORIES.c.key)).scalars())


def scopes_with_proposal(conn: Connection, org: str, proposal: str) -> list[str]:
    """The scopes of an org that have a proposal of this name."""
    query = select(PROPOSALS.c.key).where(PROPOSALS.c.org == org, PROPOSALS.c.proposal == short(proposal))
    return list(conn.execute(query.order_by(PROPOSALS.c.key)).scalars())


def memory_document(conn: Connection, org: str, scope: str, memory: str, *, now: datetime) -> Document | None:
    """One memory; None when the scope has none of this name. A deleted one is there, without its words."""
    row = one(conn, MEMORIES, org, scope, MEMORIES.c.memory == short(memory))
    return None if row is None else memory_of(row, scope, now)


def history_of(conn: Connection, org: str, scope: str, memory: str) -> list[Document]:
    """Every change of a memory, the oldest first."""
    rows = many(conn, CHANGES, org, scope, CHANGES.c.memory == short(memory))
    return [
        {"version": row["version"], **pick(row, "change", "content", "because", "other", "by", "time", "event_id")}
        for row in rows
    ]


def proposals_of(conn: Connection, org: str, scope: str, *, status: str = "") -> list[Document]:
    """What was proposed in a scope, in order, and what became of it."""
    where = (PROPOSALS.c.status == status,) if status else ()
    rows = many(conn, PROPOSALS, org, scope, *where, order=(PROPOSALS.c.epoch, PROPOSALS.c.n))
    return [_proposal(row, scope) for row in rows]


def proposal_document(conn: Connection, org: str, scope: str, proposal: str) -> Document | None:
    """What became of one proposal; None when the scope knows of none."""
    row = one(conn, PROPOSALS, org, scope, PROPOSALS.c.proposal == short(proposal))
    return None if row is None else _proposal(row, scope)


def memory_of(row: Document, scope: str, now: datetime) -> Document:
    """The document of a memory's row, at a moment."""
    end = expires_at(row)
    return {
        "memory": row["memory"],
        "scope": scope,
        "status": status_at(row, now),
        **pick(row, *_SHOWN),
        "importance": round(importance_at(row, now), 4),
        "version": row["version"],
        "said": row["said"],
        "hits": row["hits"],
        **({} if end is None else {"expires": end.isoformat()}),
    }


def _proposal(row: Document, scope: str) -> Document:
    shown = ("reason", "detail", "memory", "kind", "source", "session", "run", "time", "decided")
    return {"proposal": row["proposal"], "scope": scope, "status": row["status"], **pick(row, *shown),
            "stale": row["stale"]}  # fmt: skip
