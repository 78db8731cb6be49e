"""Whose words a message or a feedback holds: a person's, or an agent's that began a run of another."""

from __future__ import annotations

from events.types.run import RunStarted
from services.reactors.reactor import PAGE, Reaction, read_recorded


async def person_of(reaction: Reaction) -> str:
    """The user whose words the source holds; empty for a run that nobody knows (C14), and for one that another run
    began: there an agent speaks.
    """
    event = reaction.event
    if not event.run:
        return event.user
    page = await reaction.archive.run_events(event.org, event.run, limit=PAGE)
    mine = [one for archived in page if (one := read_recorded(archived)) and one.event.task == event.task]
    if any(isinstance(one.payload, RunStarted) and one.payload.parent_run for one in mine):
        return ""
    return event.user or next((one.event.user for one in mine if one.event.user), "")
