"""Which moment of a task's history a reader means: a position, a publish's token, or the id of an event."""

from __future__ import annotations

import re

from sqlalchemy import Connection

from events.archive import queries
from events.errors import Refused
from events.event import Position
from events.tokens import read_token

_POSITION = re.compile(r"\d{1,15}-\d{1,18}", re.ASCII)
_TOKEN = re.compile(r"[0-9a-f]*~?\d{1,5}\.\d{1,15}-\d{1,18}(_\d{1,5}\.\d{1,15}-\d{1,18})*", re.ASCII)


def as_position(text: str) -> Position | None:
    """The log position that a text is, such as ``1-42``; None for any other text, and for what no store could hold."""
    return Position.parse(text) if _POSITION.fullmatch(text) else None


def find_moment(conn: Connection, org: str, key: str, partition: int, at: str, log_id: str) -> Position:
    """The log position that ``at`` names in the partition of a key.

    A position (``1-42``), the token that a publish answered with, or the id of an event of this key. Raises Refused:
    ``bad_position`` for another partition's token, a position before the first, past the end, or past the end of its
    epoch (such a one is void); ``no_event`` for an id that no event of the key has.
    """
    position = as_position(at)
    if position is None and _TOKEN.fullmatch(at):
        named = read_token(at, log_id)
        if partition not in named:
            raise _bad(f"the token {at!r} is of another partition than this task's, which is {partition}")
        position = named[partition]
    if position is None:
        return _of_event(conn, org, key, at)
    _check_there(conn, partition, position)
    return position


def _of_event(conn: Connection, org: str, key: str, event_id: str) -> Position:
    found = queries.read_ids(conn, [(org, key, event_id)])
    if not found:
        raise Refused(
            f"`at` is {event_id!r:.150}, which is neither a position like 1-42, nor a publish's token, nor the id of "
            "an event of this task: `refold task ID --history` lists them",
            code="no_event",
            field="at",
        )
    return next(iter(found.values())).position


def _check_there(conn: Connection, partition: int, position: Position) -> None:
    if position.epoch < 1:
        raise _bad(f"position {position} is before the first one, which is 1-0")
    last = queries.read_watermarks(conn)[partition]
    epochs = queries.read_epochs(conn).get(partition, {})
    end = epochs.get(position.epoch)
    if position.epoch in epochs and end is not None and position.n > end:
        raise _bad(
            f"position {position} is void: epoch {position.epoch} of this task's partition ended at {end}; what was "
            f"published there and not answered stands in epoch {position.epoch + 1}, or was sent again"
        )
    if position > last:
        raise _bad(f"position {position} is past the end: the last of this task's partition is {last}")


def _bad(text: str) -> Refused:
    return Refused(text, code="bad_position", field="at")
