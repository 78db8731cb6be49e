"""Threads of checkpoints, as an agent's runtime keeps them, and items, its long-term store of keyed values.

What a runtime says stays opaque: a value is its type's name and its bytes, in base64 (``Typed``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from events.types.base import Count, JsonValue, NonEmpty, Number, Payload

Typed = tuple[str, str]
"""A value as the runtime's serialiser made it: the name of its type, its bytes in base64."""

Version = str | int | float
"""Of a channel: it names one value of it."""

Element = Annotated[str, msgspec.Meta(min_length=1)]


class ChannelValue(msgspec.Struct, frozen=True, array_like=True):
    """What a channel held at a version: ``[channel, version, type, base64]``."""

    channel: str
    version: Version
    type: str
    data: str


class Write(msgspec.Struct, frozen=True, array_like=True):
    """What a unit of work wrote to a channel: ``[index, channel, type, base64]``.

    At an index of 0 and up the first write stays; below, the last one does (errors, interrupts, answers to those).
    """

    index: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    channel: str
    type: str
    data: str


class ThreadAdvanced(Payload, frozen=True, kw_only=True):
    """A checkpoint: its state without the channels' values, and the values that are new since its parent.

    ``versions`` names the value of each channel; ``metadata`` is what of it is JSON, ``more`` the rest.
    """

    checkpoint: NonEmpty
    state: Typed
    namespace: str = ""
    parent: str = ""
    versions: dict[str, Version] = {}
    values: list[ChannelValue] = []
    metadata: dict[str, JsonValue] = {}
    more: Typed | None = None


class ThreadWritten(Payload, frozen=True, kw_only=True):
    """Writes of one unit of work (``writer``, at ``path``) after a checkpoint, which the next one will take up."""

    checkpoint: NonEmpty
    writer: NonEmpty
    writes: list[Write]
    namespace: str = ""
    path: str = ""


class ThreadPruned(Payload, frozen=True, kw_only=True):
    """Checkpoints are given up: all but those of ``keep``, or those of ``drop``; each is ``[namespace, checkpoint]``.

    An empty ``keep`` gives up the whole thread.
    """

    keep: list[tuple[str, str]] | None = None
    drop: list[tuple[str, str]] | None = None


class ThreadChunked(Payload, frozen=True, kw_only=True):
    """A part of the JSON text of an event's data that is too large for one event."""

    upload: NonEmpty
    part: Count
    text: str


class ThreadAssembled(Payload, frozen=True, kw_only=True):
    """All parts of an upload are there: their text is the data of an event of ``type``, which happens now."""

    upload: NonEmpty
    parts: Number
    type: Literal["thread.advanced", "thread.written", "thread.pruned"]
    version: Number = 1


class ItemUpdated(Payload, frozen=True, kw_only=True):
    """A keyed value in a namespace is set."""

    namespace: Annotated[list[Element], msgspec.Meta(min_length=1)]
    key: str
    value: dict[str, JsonValue]


class ItemDeleted(Payload, frozen=True, kw_only=True):
    """A keyed value in a namespace is taken away."""

    namespace: Annotated[list[Element], msgspec.Meta(min_length=1)]
    key: str
