"""What a reactor is: a value. The loop does the rest, the same for all.

``react`` may ask the outside world and may take long. It answers with raw events (the loop takes them through the one
door and waits until they are durable), or with ``Later``. It is called again whenever its answer may not have become
durable, so every event that it answers with has an id made by ``derived_id``: an id that exists means already done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from events.archive.reader import Archive, Archived
from events.door import MAX_EVENT_BYTES
from events.errors import NewerVersion, Poison
from events.event import Event, Recorded
from events.registry import decode_payload
from services.embedding.model import Matrix
from services.models.client import Models
from services.reactors.derived import derived_id

PAGE = 1_000


@dataclass(frozen=True)
class Later:
    """Not done yet: ask again in this many seconds. Waiting takes no place in the reactor's concurrency.

    ``first`` are raw events to append before, such as what a try has led to: the next one finds them in the log,
    whoever makes it.
    """

    seconds: float
    first: Sequence[dict[str, Any]] = ()


Embed = Callable[[Sequence[str]], Awaitable[Matrix]]
"""Vectors of length 1 for texts, in their order. Raises RefoldError where the model cannot be had."""


@dataclass(frozen=True)
class Outside:
    """What reactors may use of the world, and how long they may wait for it: the same for all of a process.

    A run that settles itself has ``settle_deadline_s`` where it names no deadline; a model that cannot be asked is
    waited for until ``settle_patience_s`` after the run's end. ``embed`` gives texts their vectors, where there
    is a model that does.
    """

    models: Models = field(default_factory=Models)
    settle_deadline_s: float = 60.0
    settle_patience_s: float = 600.0
    summary_model: str = ""
    """The model that summarises cards; empty: none does."""
    extract_model: str = ""
    """The model that reads what users say; empty: rules do."""
    embed: Embed | None = None
    max_event_bytes: int = MAX_EVENT_BYTES
    """The largest ``data`` that the door lets in: what a reactor makes must not be larger."""


@dataclass(frozen=True)
class Reaction:
    """One event to react to, and what a reactor may use: the archive, and the world outside."""

    reactor: str
    source: Archived
    recorded: Recorded
    archive: Archive
    outside: Outside = field(default_factory=Outside)

    @property
    def event(self) -> Event:
        """The source event."""
        return self.recorded.event

    def age_s(self) -> float:
        """Seconds since the source event was archived."""
        return time() - self.source.received_ms / 1000

    async def run_events(self) -> list[Recorded]:
        """The effective events of the source's run that this code can read, by partition and position."""
        events: list[Recorded] = []
        after = None
        while page := await self.archive.run_events(self.event.org, self.event.run, after=after, limit=PAGE):
            events += [recorded for archived in page if (recorded := read_recorded(archived)) is not None]
            after = (page[-1].partition, page[-1].position)
            if len(page) < PAGE:
                break
        return [recorded for recorded in events if recorded.event.task == self.event.task]

    def so_far(self, events: Sequence[Recorded]) -> list[Recorded]:
        """Those of the source's partition up to the source: what any later try sees too."""
        here, upto = self.source.partition, self.source.position
        return [recorded for recorded in events if recorded.partition == here and recorded.position <= upto]

    def derive(self, kind: str, data: dict[str, Any], *, part: str = "", **names: str) -> dict[str, Any]:
        """A raw event derived from the source: its id, time, org and causation follow from the source.

        ``part`` tells apart several events derived from one source; ``names`` are the envelope's other members.
        """
        source = self.event
        return {
            "id": derived_id(self.reactor, source, part),
            "type": kind,
            "source": f"refold/{self.reactor}",
            "time": source.time,
            "org": source.org,
            "causation": source.id,
            "correlation": source.correlation or source.run,
            "data": data,
            **{name: value for name, value in names.items() if value},
        }


React = Callable[[Reaction], Awaitable[Sequence[dict[str, Any]] | Later]]


@dataclass(frozen=True)
class Reactor:
    """One reactor. ``from_start``: a new one begins with the whole log instead of its tail.

    A new ``version`` is a new one, too: its checkpoints and leases are its own, so that it runs beside workers with
    former code until those are gone. Ids of what it derives must hold the version where they are to differ.
    """

    name: str
    handles: frozenset[str]
    react: React
    from_start: bool = False
    version: int = 1

    @property
    def key(self) -> str:
        """The name under which its checkpoints and leases are kept."""
        return self.name if self.version == 1 else f"{self.name}@{self.version}"


def read_recorded(archived: Archived) -> Recorded | None:
    """The event with its payload; None for one that does not count, or that no code can read.

    Raises NewerVersion for one that newer code can read: what depends on it waits for that.
    """
    if archived.verdict != "effective":
        return None
    event = archived.event()
    try:
        payload = decode_payload(event)
    except NewerVersion:
        raise
    except Poison:
        return None
    return None if payload is None else Recorded(archived.partition, archived.position, event, payload)
