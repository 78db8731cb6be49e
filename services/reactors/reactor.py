"""What a reactor is: a value. The loop does the rest, the same for all.

``react`` may ask the outside world and may take long. It answers with raw events (the loop takes them through the one
door and waits until they are durable), or with ``Later``. It is called again whenever its answer may not have become
durable, so every event that it answers with has an id made by ``derived_id``: an id that exists means already done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from events.archive.reader import Archive, Archived
from events.errors import NewerVersion, Poison
from events.event import Event, Recorded
from events.registry import decode_payload
from services.reactors.derived import derived_id

PAGE = 1_000


@dataclass(frozen=True)
class Later:
    """Nothing to do yet: ask again in this many seconds. Waiting takes no place in the reactor's concurrency."""

    seconds: float


@dataclass(frozen=True)
class Reaction:
    """One event to react to, and what a reactor may know: the archive, and settings that it takes by name."""

    reactor: str
    source: Archived
    recorded: Recorded
    archive: Archive
    settle_deadline_s: float = 60.0

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
    """One reactor. ``from_start``: a new one begins with the whole log instead of its tail."""

    name: str
    handles: frozenset[str]
    react: React
    from_start: bool = False


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
