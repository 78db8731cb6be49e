"""Ids of derived events: from the reactor and the event it reacted to, so that trying again changes nothing."""

from __future__ import annotations

from events.event import Event
from events.ids import named_id
from events.times import instant


def derived_id(reactor: str, source: Event, part: str = "") -> str:
    """The same for the same reactor, source and part; as old as the source event."""
    return named_id("\x1f".join((reactor, part, source.org, source.key, source.id)), instant(source.time))
