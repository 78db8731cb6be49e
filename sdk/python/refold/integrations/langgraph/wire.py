"""Checkpoints as events say them, and as documents give them back. Pure, apart from ids and the clock.

Values stay what the serialiser made of them, type and bytes. Metadata travel as JSON where they are JSON, so that
lists can be filtered by them, and the rest through the serialiser.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from refold import ids

CHUNK_CHARS = 250_000
"""Of an event's data in one part of it: a part stays below the limit of an event however its text is escaped."""

MAX_NAME_CHARS = 240

Raw = dict[str, Any]
"""An event, or a document."""


def run_of(thread: str) -> str:
    """The run and task that the events of a thread name. Raises ValueError for a name that is too long."""
    if len(thread) > MAX_NAME_CHARS:
        raise ValueError(f"`thread_id` is at most {MAX_NAME_CHARS} characters, not {len(thread)}: {thread[:40]!r}...")
    return f"thread:{thread}"


def thread_of(run: str) -> str:
    """The reverse of ``run_of``."""
    return run.removeprefix("thread:")


def pack(serde: SerializerProtocol, value: Any) -> tuple[str, bytes]:
    """A value, serialised: its type and its bytes, which are not the value's own."""
    kind, data = serde.dumps_typed(value)
    return kind, bytes(data)


def unpack(packed: Sequence[Any]) -> tuple[str, bytes]:
    """What ``pack`` made. JSON holds its bytes in base64, the memory of this process as they are."""
    kind, data = packed
    return kind, data if isinstance(data, bytes) else b64decode(data)


def as_json(data: Raw) -> bytes:
    """What is said, as JSON: bytes in base64."""
    return orjson.dumps(data, default=_base64)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def advanced(
    serde: SerializerProtocol,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Raw:
    """The data of the event that saves a checkpoint: its state, and the values whose versions are new.

    Raises ValueError for a name that would not come back as it was.
    """
    _check_names(config, checkpoint["id"], *checkpoint["channel_versions"])
    state: dict[str, Any] = dict(checkpoint)
    held = state.pop("channel_values")
    versions = state.pop("channel_versions")
    plain, rest = _parted(get_checkpoint_metadata(config, metadata))
    data = {
        "namespace": config["configurable"].get("checkpoint_ns", ""),
        "checkpoint": checkpoint["id"],
        "parent": config["configurable"].get("checkpoint_id") or "",
        "state": pack(serde, state),
        "versions": versions,
        "values": [
            [channel, version, *pack(serde, held[channel])]
            for channel, version in new_versions.items()
            if channel in held
        ],
        "metadata": plain,
    }
    return {**data, "more": pack(serde, rest)} if rest else data


def written(
    serde: SerializerProtocol, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Raw:
    """The data of the event that saves the writes of one unit of work. Raises ValueError as ``advanced``."""
    _check_names(config, task_id, task_path, *(channel for channel, _ in writes))
    return {
        "namespace": config["configurable"].get("checkpoint_ns", ""),
        "checkpoint": config["configurable"]["checkpoint_id"],
        "writer": task_id,
        "path": task_path,
        "writes": [
            [WRITES_IDX_MAP.get(channel, index), channel, *pack(serde, value)]
            for index, (channel, value) in enumerate(writes)
        ],
    }


def copied(document: Raw, known: set[tuple[str, str, str]]) -> Iterator[tuple[str, Raw]]:
    """The events (type and data) that make a checkpoint of one thread one of another.

    ``known`` are the values that were copied before: (namespace, channel, version as JSON); it grows.
    """
    namespace, versions = document["namespace"], document["versions"]
    values = []
    for channel, kind, data in document["values"]:
        name = (namespace, channel, orjson.dumps(versions[channel]).decode())
        if name not in known:
            known.add(name)
            values.append([channel, versions[channel], kind, data])
    same = {name: document[name] for name in ("namespace", "checkpoint", "parent", "state", "versions", "metadata")}
    more = {"more": document["more"]} if document["more"] else {}
    yield "thread.advanced", {**same, "values": values, **more}
    for writer, path, index, channel, kind, data in document["writes"]:
        write = {"writer": writer, "path": path, "writes": [[index, channel, kind, data]]}
        yield "thread.written", {"namespace": namespace, "checkpoint": document["checkpoint"], **write}


def found(serde: SerializerProtocol, document: Raw, config: RunnableConfig | None = None) -> CheckpointTuple:
    """The checkpoint that a document holds. ``config`` is the one that asked for it by its id."""
    thread, namespace, parent = document["thread"], document["namespace"], document["parent"]
    checkpoint = {
        **serde.loads_typed(unpack(document["state"])),
        "channel_versions": document["versions"],
        "channel_values": {channel: serde.loads_typed(unpack(packed)) for channel, *packed in document["values"]},
    }
    more = serde.loads_typed(unpack(document["more"])) if document["more"] else {}
    return CheckpointTuple(
        config=config or config_of(thread, namespace, document["checkpoint"]),
        checkpoint=checkpoint,  # type: ignore[arg-type]
        metadata={**document["metadata"], **more},  # type: ignore[typeddict-item]
        parent_config=config_of(thread, namespace, parent) if parent else None,
        pending_writes=[
            (writer, channel, serde.loads_typed(unpack(packed)))
            for writer, _, _, channel, *packed in document["writes"]
        ],
    )


def config_of(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def events_of(run: str, type: str, data: Raw) -> list[Raw]:
    """The events that say one thing of a thread: one, or its parts and what joins them. Their numbers are to be set."""
    text = as_json(data)
    if len(text) <= CHUNK_CHARS:
        return [event(type, orjson.Fragment(text), run=run)]
    whole, upload = text.decode(), ids.uuid7()
    parts = [whole[start : start + CHUNK_CHARS] for start in range(0, len(whole), CHUNK_CHARS)]
    saying = [{"upload": upload, "part": part, "text": piece} for part, piece in enumerate(parts)]
    joined = {"upload": upload, "parts": len(parts), "type": type}
    return [*(event("thread.chunked", one, run=run) for one in saying), event("thread.assembled", joined, run=run)]


def said(events: Iterable[Raw]) -> Iterator[tuple[str, Raw]]:
    """What events of a thread say (type and data), with parts put together: the reverse of ``events_of``.

    Parts that no event joins say nothing.
    """
    uploads: dict[str, list[str]] = {}
    for one in events:
        data = one["data"]
        if one["type"] == "thread.chunked":
            uploads.setdefault(data["upload"], []).append(data["text"])
        elif one["type"] == "thread.assembled":
            pieces = uploads.pop(data["upload"], [])
            if len(pieces) == data["parts"]:
                yield data["type"], orjson.loads("".join(pieces))
        else:
            yield one["type"], data


def numbered(events: list[Raw], first: int) -> list[Raw]:
    """The events, with their numbers set."""
    for seq, one in enumerate(events, first):
        one["seq"] = seq
    return events


def event(type: str, data: Raw | orjson.Fragment, **members: Any) -> Raw:
    """A CloudEvent with an id and a time of its own."""
    return {
        "specversion": "1.0", "id": ids.uuid7(), "type": type, "time": ids.now(), "source": "refold-langgraph",
        **members, "data": data,
    }  # fmt: skip


def plain(value: Any, depth: int = 32) -> bool:
    """Whether a value comes back from JSON, and from the backend's door, as it was."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is float:
        return isfinite(value)
    if kind is str:
        return _sound(value)
    if kind is list:
        return depth > 0 and all(plain(item, depth - 1) for item in value)
    if kind is dict:
        return depth > 0 and all(type(k) is str and _sound(k) and plain(v, depth - 1) for k, v in value.items())
    return False


def _sound(text: str) -> bool:
    """Without what the door replaces: NUL, and surrogates without their other half."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def _check_names(config: RunnableConfig, *names: str) -> None:
    for name in (config["configurable"].get("checkpoint_ns", ""), *names):
        if not _sound(name):
            raise ValueError(f"the name {name!r:.100} holds a NUL or half a surrogate pair: choose one without")


def wanted(filter: Mapping[str, Any] | None) -> str | None:
    """The part of a filter that the backend can apply, as JSON."""
    those = {name: value for name, value in (filter or {}).items() if plain(name) and plain(value)}
    return orjson.dumps(those).decode() if those else None


def fits(metadata: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether metadata have every member of a filter."""
    return all(name in metadata and metadata[name] == value for name, value in (filter or {}).items())


def _parted(metadata: Mapping[str, Any]) -> tuple[Raw, Raw]:
    """Metadata that are JSON, and those that are none."""
    names = {name for name, value in metadata.items() if plain(name) and plain(value)}
    rest = {name: value for name, value in metadata.items() if name not in names}
    return {name: value for name, value in metadata.items() if name in names}, rest
