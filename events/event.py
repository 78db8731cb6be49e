"""The event as it is inside Refold, and its position in the log.

Absent text is ``""`` and an absent ``seq`` is ``0``: an event is one flat record on a stream, in SQL and here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Position(NamedTuple):
    """Where an entry stands in one partition's log: two integers, ordered as a pair, never compared as text.

    Positions of different partitions are not comparable.
    """

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.n}"

    @classmethod
    def parse(cls, text: str | bytes) -> Position:
        """Read ``"<epoch>-<n>"``, the form of a Redis stream entry id. Raises ValueError on anything else."""
        raw = text.decode() if isinstance(text, bytes) else text
        epoch, n = raw.split("-", 1)  # before the first of an epoch n is -1
        return cls(int(epoch), int(n))


START = Position(0, -1)
"""Before the first entry of any log: epochs begin at 1, n at 0."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event that has passed the door (see ``events.door``): valid, sanitised, with a normalised time.

    ``data`` is the JSON text of an object; ``time`` is RFC 3339 with an offset, as published. ``digest`` is the
    content digest that tells a duplicate from a conflict, ``key`` the partition key that the type's rule gives.
    Fields are given by name; only a row of the archive, in the order below, makes one by position.
    """

    id: str
    type: str
    time: str
    org: str
    key: str
    digest: str
    source: str = ""
    agent: str = ""
    user: str = ""
    session: str = ""
    task: str = ""
    run: str = ""
    seq: int = 0
    schemaversion: int = 1
    causation: str = ""
    correlation: str = ""
    traceparent: str = ""
    data: str = "{}"
    sanitized: bool = False


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An archived event as a fold sees it. ``payload`` is the decoded, upcast data: an instance of the type's class."""

    partition: int
    position: Position
    event: Event
    payload: Any
