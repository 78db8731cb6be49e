"""What was told is recorded after the answer: an answer waits for no event, and is none the worse without it."""

from __future__ import annotations

import logging
from typing import Any

from events.errors import RefoldError
from services.composition import Backend

_log = logging.getLogger("refold.api")


async def record(backend: Backend, org: str, what: str, events: list[dict[str, Any]], source: str) -> None:
    """Publish the record of ``what`` was answered. One that fails is told in the log."""
    try:
        outcomes = await backend.publisher.publish(events, org=org, source=source)
    except RefoldError as error:
        _log.warning("%s was not recorded: %s", what, error)
        return
    for outcome in outcomes:
        if outcome.status not in ("stored", "duplicate"):
            _log.warning("%s was not recorded: %s", what, outcome.message)
