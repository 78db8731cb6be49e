"""Asking for an erasure: ``scope.erased`` for every partition, with ids that follow from the erasure's own.

So asking again, by whoever does, completes what was begun and begins nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from events.archive.subjects import ERASURE, Subject
from events.door import admit
from events.errors import Refused
from events.event import Event
from events.publisher import Publisher

MAX_ID_CHARS = 100


def events_of(subject: Subject, erasure: str, by: str, partitions: int) -> list[Event]:
    """One event for each partition. Raises Refused for names that no event may have."""
    if not erasure or len(erasure) > MAX_ID_CHARS:
        raise Refused(f"an erasure's id has 1 to {MAX_ID_CHARS} characters", code="bad_erasure", field="id")
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    data = {"level": subject.level, "subject": subject.name, "by": by, "erasure": erasure}
    common = {"type": ERASURE, "source": "refold/erase", "org": subject.org}
    raws = [common | {"id": f"{erasure}/{p}", "data": data | {"partition": p}} for p in range(partitions)]
    return [admit(raw, now=now) for raw in raws]


async def ask(publisher: Publisher, events: Sequence[Event]) -> None:
    """Publish an erasure, and return when the archive has it: then no read of the archive finds the words.

    Raises Refused when the id is that of another erasure; Transient, when the same is to be asked for again.
    """
    for outcome in await publisher.publish_events(events, source="erasure"):
        if outcome.status not in ("stored", "duplicate"):
            raise Refused(outcome.message or f"the erasure was {outcome.status}", code=outcome.code or "conflict")
