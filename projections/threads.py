"""Threads: the checkpoints of an agent's runtime, the values of its channels, and writes that no checkpoint has yet.

    thread.advanced    a checkpoint, and each new value of a channel, once for each version
    thread.written     writes after a checkpoint; at an index of 0 and up the first one stays, below the last
    thread.pruned      checkpoints go, with their writes, and the values that no remaining checkpoint names
    thread.chunked     a part of a larger event waits
    thread.assembled   its parts together are one of the above, which happens now

``entries`` lists the rows that each event added, in order, so that pruning finds them without a scan: its cost grows
with the thread, that of all other events does not. ``seq`` is the number of the thread's last event: who writes next
gives the number after it, and of two who do so at once the log takes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Index, MetaData

from events.errors import Poison
from events.event import Recorded
from events.registry import EVENT_TYPES, decode_data
from events.types.thread import (
    ThreadAdvanced,
    ThreadAssembled,
    ThreadChunked,
    ThreadPruned,
    ThreadWritten,
    Version,
)
from projections.bounds import canonical, short
from projections.draft import Blanks, Draft, count, json, text
from projections.projection import Change, Projection, RowRef, Rows, read_model_table

METADATA = MetaData()

THREADS = read_model_table(
    METADATA,
    "threads",
    text("task"),
    count("seq"),
    count("entries"),
    text("time"),
)

CHECKPOINTS = read_model_table(
    METADATA,
    "thread_checkpoints",
    text("namespace_key", pk=True),
    text("checkpoint_key", pk=True),
    text("task"),
    text("namespace"),
    text("checkpoint"),
    text("parent"),
    text("state_type"),
    text("state"),  # base64
    json("versions"),  # {channel: version}
    json("metadata"),
    text("more_type"),
    text("more"),  # base64: metadata that are no JSON
    text("run_id"),  # of the metadata, to find the checkpoints of a run
    text("event_id"),
    text("time"),
)
Index("thread_checkpoints_by_run", CHECKPOINTS.c.org, CHECKPOINTS.c.run_id)

VALUES = read_model_table(
    METADATA,
    "thread_values",
    text("namespace_key", pk=True),
    text("channel_key", pk=True),
    text("version_key", pk=True),
    text("type"),
    text("data"),  # base64
)

WRITES = read_model_table(
    METADATA,
    "thread_writes",
    text("namespace_key", pk=True),
    text("checkpoint_key", pk=True),
    text("writer_key", pk=True),
    count("index", pk=True),
    text("writer"),
    text("path"),
    text("channel"),
    text("type"),
    text("data"),  # base64
)

PARTS = read_model_table(
    METADATA,
    "thread_parts",
    text("upload_key", pk=True),
    count("part", pk=True),
    text("text"),
)

ENTRIES = read_model_table(
    METADATA,
    "thread_entries",
    count("entry", pk=True),
    json("rows"),  # [[table, *primary key after org and key], ...]
)

TABLES = (THREADS, CHECKPOINTS, VALUES, WRITES, PARTS, ENTRIES)
BLANKS = Blanks(TABLES)

MAX_PARTS = 10_000
"""Of one upload: some gigabytes."""

Whole = ThreadAdvanced | ThreadWritten | ThreadPruned


def version_key(version: Version) -> str:
    """A version as it stands in a primary key: ``1`` and ``"1"`` are different ones."""
    return short(canonical(version))


def apply(recorded: Recorded, rows: Rows) -> Iterable[Change]:
    """Fold one event of a thread."""
    draft = Draft(rows, BLANKS)
    event = recorded.event
    thread = draft.edit("threads")
    thread.update(task=event.task, time=event.time, seq=max(thread["seq"], event.seq))
    match recorded.payload:
        case ThreadChunked() as payload:
            ref = ("thread_parts", short(payload.upload), payload.part)
            draft.add(*ref)["text"] = payload.text
            _note(draft, thread, [ref])
        case ThreadAssembled() as payload:
            _happens(draft, thread, recorded, _assembled(draft, payload))
        case ThreadAdvanced() | ThreadWritten() | ThreadPruned() as payload:
            _happens(draft, thread, recorded, payload)
    return draft.changes()


def _assembled(draft: Draft, payload: ThreadAssembled) -> Whole:
    """The payload that the parts make together; they are not needed any more."""
    if payload.parts > MAX_PARTS:
        raise Poison(f"{payload.parts} parts are more than the limit of {MAX_PARTS}")
    upload = short(payload.upload)
    texts = []
    for part in range(payload.parts):
        row = draft.peek("thread_parts", upload, part)
        if row is None:
            raise Poison(f"part {part} of the {payload.parts} of {payload.upload} is not there")
        texts.append(row["text"])
        draft.drop("thread_parts", upload, part)
    whole: Any = decode_data(EVENT_TYPES[payload.type], payload.version, "".join(texts))
    return whole  # type: ignore[no-any-return]


def _happens(draft: Draft, thread: dict[str, Any], recorded: Recorded, payload: Whole) -> None:
    match payload:
        case ThreadAdvanced():
            _note(draft, thread, _advanced(draft, recorded, payload))
        case ThreadWritten():
            _note(draft, thread, _written(draft, payload))
        case ThreadPruned():
            _pruned(draft, thread, payload)


def _advanced(draft: Draft, recorded: Recorded, payload: ThreadAdvanced) -> list[tuple[Any, ...]]:
    event = recorded.event
    namespace = short(payload.namespace)
    ref = ("thread_checkpoints", namespace, short(payload.checkpoint))
    run_id = payload.metadata.get("run_id")
    more = payload.more or ("", "")
    draft.add(*ref).update(
        task=event.task,
        namespace=payload.namespace,
        checkpoint=payload.checkpoint,
        parent=payload.parent,
        state_type=payload.state[0],
        state=payload.state[1],
        versions=payload.versions,
        metadata=payload.metadata,
        more_type=more[0],
        more=more[1],
        run_id=run_id if isinstance(run_id, str) else "",
        event_id=event.id,
        time=event.time,
    )
    refs: list[tuple[Any, ...]] = [ref]
    for value in payload.values:
        refs.append(("thread_values", namespace, short(value.channel), version_key(value.version)))
        draft.add(*refs[-1]).update(type=value.type, data=value.data)
    return refs


def _written(draft: Draft, payload: ThreadWritten) -> list[tuple[Any, ...]]:
    refs: list[tuple[Any, ...]] = []
    place = (short(payload.namespace), short(payload.checkpoint), short(payload.writer))
    for write in payload.writes:
        ref = ("thread_writes", *place, write.index)
        if draft.peek(*ref) is not None:
            if write.index >= 0:
                continue
        else:
            refs.append(ref)
        draft.edit(*ref).update(
            writer=payload.writer, path=payload.path, channel=write.channel, type=write.type, data=write.data
        )
    return refs


def _note(draft: Draft, thread: dict[str, Any], refs: list[tuple[Any, ...]]) -> None:
    """Remember the rows that the event added."""
    if refs:
        thread["entries"] += 1
        draft.add("thread_entries", thread["entries"])["rows"] = [list(ref) for ref in refs]


def _pruned(draft: Draft, thread: dict[str, Any], payload: ThreadPruned) -> None:
    """Drop rows, and number the entries of those that stay anew."""
    entries = []
    for entry in range(1, thread["entries"] + 1):
        row = draft.peek("thread_entries", entry)
        entries.append([tuple(ref) for ref in row["rows"]] if row is not None else [])
        draft.drop("thread_entries", entry)
    stays = _staying(draft, [ref for refs in entries for ref in refs], payload)
    thread["entries"] = 0
    for refs in entries:
        for ref in refs:
            if ref not in stays:
                draft.drop(*ref)
        _note(draft, thread, [ref for ref in refs if ref in stays])


def _staying(draft: Draft, refs: list[tuple[Any, ...]], payload: ThreadPruned) -> set[tuple[Any, ...]]:
    """The rows that a pruned thread still needs."""
    checkpoints = {ref for ref in refs if ref[0] == "thread_checkpoints"}
    if payload.keep is not None:
        checkpoints &= _named(payload.keep)
    checkpoints -= _named(payload.drop or [])
    kept = {ref: row for ref in checkpoints if (row := draft.peek(*ref)) is not None}
    needed = {
        ("thread_values", ref[1], short(channel), version_key(version))
        for ref, row in kept.items()
        for channel, version in row["versions"].items()
    }
    places = {ref[1:] for ref in kept}
    writes = {ref for ref in refs if ref[0] == "thread_writes" and ref[1:3] in places}
    return kept.keys() | (needed & set(refs)) | writes


def _named(places: list[tuple[str, str]]) -> set[tuple[Any, ...]]:
    return {("thread_checkpoints", short(namespace), short(checkpoint)) for namespace, checkpoint in places}


def names(recorded: Recorded) -> Iterable[RowRef]:
    """The rows that ``apply`` will ask for, but for those that pruning, or an assembled event, finds on its way."""
    yield RowRef("threads")
    match recorded.payload:
        case ThreadAssembled() as payload:
            for part in range(min(payload.parts, MAX_PARTS)):
                yield RowRef("thread_parts", (short(payload.upload), part))
        case ThreadWritten() as payload:
            place = (short(payload.namespace), short(payload.checkpoint), short(payload.writer))
            for write in payload.writes:
                yield RowRef("thread_writes", (*place, write.index))


THREADS_PROJECTION = Projection(
    name="threads",
    version=1,
    tables=TABLES,
    handles=frozenset(
        ("thread.advanced", "thread.written", "thread.pruned", "thread.chunked", "thread.assembled"),
    ),
    apply=apply,
    names=names,
    cache_rows=2_000,
)
