"""Reads of threads: a checkpoint with its values and writes, and lists of checkpoints, the newest first.

A newer checkpoint has a greater id, which has at most 96 bytes: that is what runtimes promise. Documents hold values as
they came, in base64.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, select, tuple_

from events.keys import task_key, thread_task
from projections.bounds import short
from projections.queries.rows import Document
from projections.threads import CHECKPOINTS, THREADS, VALUES, WRITES, version_key

_MANY = 500
"""Values asked for in one statement: stores limit its parameters."""

_SOME = 100
"""Rows that are fetched at once while a list is filtered."""

_THREAD = len(thread_task(""))


class Wanted(NamedTuple):
    """Which checkpoints a list holds: None is any. ``metadata``: members that must be equal.

    ``before``: those with a smaller checkpoint id. ``beyond``: where the page before ended, see ``place``.
    """

    thread: str | None = None
    namespace: str | None = None
    checkpoint: str | None = None
    before: str | None = None
    metadata: Document | None = None
    beyond: tuple[str, str, str] | None = None


def thread_document(
    conn: Connection, org: str, thread: str, namespace: str, checkpoint: str | None = None
) -> Document | None:
    """A thread, and a checkpoint in a namespace of it, or the newest there; None for an unknown thread.

    ``seq`` numbers the thread's last event, ``head`` names the newest checkpoint of the namespace.
    """
    key = task_key(thread_task(thread))
    seq = conn.execute(select(THREADS.c.seq).where(THREADS.c.org == org, THREADS.c.key == key)).scalar()
    if seq is None:
        return None
    c = CHECKPOINTS.c
    here = select(CHECKPOINTS).where(c.org == org, c.key == key, c.namespace_key == short(namespace))
    row = conn.execute(here.order_by(c.checkpoint_key.desc()).limit(1)).mappings().first()
    head = row["checkpoint"] if row is not None else ""
    if checkpoint is not None and checkpoint != head:
        row = conn.execute(here.where(c.checkpoint_key == short(checkpoint))).mappings().first()
    found = None if row is None else checkpoint_document(conn, dict(row))
    return {"thread": thread, "seq": seq, "head": head, "checkpoint": found}


def list_checkpoints(conn: Connection, org: str, wanted: Wanted, limit: int) -> list[Document]:
    """At most ``limit`` checkpoints, the newest first; of equal ids by thread and namespace."""
    rows = (row for row in _rows(conn, org, wanted) if _fits(row["metadata"], wanted.metadata))
    return [checkpoint_document(conn, row) for row in list(islice(rows, limit))]


def place(document: Document) -> list[str]:
    """The place of a checkpoint in every list."""
    return [short(document["checkpoint"]), task_key(thread_task(document["thread"])), short(document["namespace"])]


def checkpoint_document(conn: Connection, row: Document) -> Document:
    """A checkpoint with the values that its versions name, and its pending writes in the order they apply."""
    return {
        "thread": row["task"][_THREAD:],
        **{name: row[name] for name in ("namespace", "checkpoint", "parent", "versions", "metadata", "time")},
        "state": [row["state_type"], row["state"]],
        "more": [row["more_type"], row["more"]] if row["more_type"] else None,
        "values": list(_values(conn, row)),
        "writes": _writes(conn, row),
    }


def _rows(conn: Connection, org: str, wanted: Wanted) -> Iterator[Document]:
    c = CHECKPOINTS.c
    query: Select[Any] = select(CHECKPOINTS).where(c.org == org, *_conditions(wanted))
    ordered = query.order_by(c.checkpoint_key.desc(), c.key, c.namespace_key).execution_options(yield_per=_SOME)
    for row in conn.execute(ordered).mappings():
        yield dict(row)


def _conditions(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    c = CHECKPOINTS.c
    if wanted.thread is not None:
        yield c.key == task_key(thread_task(wanted.thread))
    if wanted.namespace is not None:
        yield c.namespace_key == short(wanted.namespace)
    if wanted.checkpoint is not None:
        yield c.checkpoint_key == short(wanted.checkpoint)
    if wanted.before is not None:
        yield c.checkpoint_key < short(wanted.before)
    if isinstance(run_id := (wanted.metadata or {}).get("run_id"), str):
        yield c.run_id == run_id
    if wanted.beyond is not None:
        checkpoint, key, namespace = wanted.beyond
        later = tuple_(c.key, c.namespace_key) > tuple_(key, namespace)
        yield (c.checkpoint_key < checkpoint) | ((c.checkpoint_key == checkpoint) & later)


def _fits(metadata: Document, wanted: Document | None) -> bool:
    return all(name in metadata and metadata[name] == value for name, value in (wanted or {}).items())


def _values(conn: Connection, row: Document) -> Iterator[list[Any]]:
    """``[channel, type, base64]`` of each channel that has a value at this checkpoint's version."""
    channels = {(short(name), version_key(version)): name for name, version in row["versions"].items()}
    c = VALUES.c
    mine = select(c.channel_key, c.version_key, c.type, c.data).where(
        c.org == row["org"], c.key == row["key"], c.namespace_key == row["namespace_key"]
    )
    refs = sorted(channels)
    for start in range(0, len(refs), _MANY):
        some = mine.where(tuple_(c.channel_key, c.version_key).in_(refs[start : start + _MANY]))
        for channel, version, type_, data in conn.execute(some):
            yield [channels[channel, version], type_, data]


def _writes(conn: Connection, row: Document) -> list[list[Any]]:
    """``[writer, path, index, channel, type, base64]``, by path, writer and index."""
    c = WRITES.c
    query = select(c.writer, c.path, c.index, c.channel, c.type, c.data).where(
        c.org == row["org"],
        c.key == row["key"],
        c.namespace_key == row["namespace_key"],
        c.checkpoint_key == row["checkpoint_key"],
    )
    return [list(write) for write in sorted(conn.execute(query).all(), key=lambda w: (w.path, w.writer, w.index))]
