"""Reads of the checkpoints that an agent's own runtime saved: which are kept, and one with its data as it was given."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import Connection, select

from events.keys import task_key
from projections.queries.moments import as_position
from projections.queries.rows import Document, many, one, pick, position
from projections.task.tables import SNAPSHOTS, TASKS

_NEWEST_FIRST = (SNAPSHOTS.c.epoch.desc(), SNAPSHOTS.c.n.desc())
_TOLD = [column for column in SNAPSHOTS.columns if column.name not in ("org", "key", "data")]


def list_checkpoints(conn: Connection, org: str, task: str) -> list[Document] | None:
    """The checkpoints of a task that are kept, the newest first, without their data; None for an unknown task."""
    key = task_key(task)
    rows = conn.execute(
        select(*_TOLD).where(SNAPSHOTS.c.org == org, SNAPSHOTS.c.key == key).order_by(*_NEWEST_FIRST)
    ).mappings()
    found = [_told(dict(row)) for row in rows]
    return found if found or one(conn, TASKS, org, key) is not None else None


def find_checkpoint(conn: Connection, org: str, task: str, name: str) -> Document | None:
    """A checkpoint with its data: the latest that the agent gave this name, else the one at this log position."""
    key = task_key(task)
    named = many(conn, SNAPSHOTS, org, key, SNAPSHOTS.c.checkpoint == name, order=_NEWEST_FIRST, limit=1)
    here = as_position(name)
    if not named and here is not None:
        named = many(conn, SNAPSHOTS, org, key, SNAPSHOTS.c.epoch == here.epoch, SNAPSHOTS.c.n == here.n)
    return _whole(named[0]) if named else None


def latest_checkpoint(conn: Connection, org: str, key: str) -> Document | None:
    """The last checkpoint that was saved under a partition key, with its data; None before the first."""
    of = select(SNAPSHOTS.c.epoch, SNAPSHOTS.c.n).where(SNAPSHOTS.c.org == org, SNAPSHOTS.c.key == key)
    # its place first: the data of the others is not to be read
    last = conn.execute(of.order_by(*_NEWEST_FIRST).limit(1)).first()
    if last is None:
        return None
    row = one(conn, SNAPSHOTS, org, key, SNAPSHOTS.c.epoch == last.epoch, SNAPSHOTS.c.n == last.n)
    return row and _whole(row)


def _told(row: dict[str, Any]) -> Document:
    shown = pick(row, "checkpoint", "data_version", "run", "time", "size_bytes")
    late = {"late": True} if row["late"] else {}
    return {**shown, "milestone": bool(row["milestone"]), **late, "position": position(row)}


def _whole(row: Document) -> Document:
    shown = pick(row, "checkpoint", "data_version", "run", "time")
    return {
        **shown,
        "milestone": row["milestone"],
        "data": orjson.loads(row["data"]),
        "position": position(row),
    }
