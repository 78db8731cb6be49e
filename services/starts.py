"""What a run was started with, as its log tells: prompt and tools are kept by content address, and sent once."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import Connection

from events.archive import queries
from events.event import Position
from projections.cards.summary import message_text


def started_with(conn: Connection, org: str, task: str, run: str, upto: Position) -> tuple[str, Any]:
    """The system prompt and the tools that a run was started with, where they came with their content; else empty."""
    known: dict[str, Any] = {}
    for place, of_run, data in queries.read_starts(conn, org, task):
        if place > upto:
            break
        started = orjson.loads(data)
        told = started.get("tools") or {}
        if told.get("content") is not None:
            known[told["digest"]] = told["content"]
        if of_run == run:
            content = (started.get("system_prompt") or {}).get("content")
            return message_text(content) if content else "", known.get(told.get("digest", ""))
    return "", None
