"""Which checkpoints of a thread must stay when only its newest ones are wanted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from refold.integrations.langgraph.wire import Raw, unpack

_DELTAS = "counters_since_delta_snapshot"
"""Member of the metadata that names the channels kept as changes since a snapshot."""


def needed(serde: SerializerProtocol, documents: Iterable[Raw]) -> list[list[str]]:
    """``[namespace, checkpoint]`` of those to keep; ``documents`` come the newest first.

    A delta channel of a newest checkpoint is rebuilt from the writes of its ancestors, back to the nearest one that
    holds a snapshot of it: those stay, too.
    """
    wanted: dict[tuple[str, str], set[str]] = {}
    seen: set[str] = set()
    keep = []
    for document in documents:
        namespace, place = document["namespace"], (document["namespace"], document["checkpoint"])
        if namespace not in seen:
            seen.add(namespace)
            wanted.setdefault(place, set()).update(_deltas(serde, document))
        if place in wanted:
            keep.append(list(place))
            missing = wanted.pop(place) - {channel for channel, *_ in document["values"]}
            if missing and document["parent"]:
                wanted.setdefault((namespace, document["parent"]), set()).update(missing)
    return keep


def _deltas(serde: SerializerProtocol, document: Raw) -> set[str]:
    more: dict[str, Any] = serde.loads_typed(unpack(document["more"])) if document["more"] else {}
    return set(document["metadata"].get(_DELTAS) or more.get(_DELTAS) or ())
