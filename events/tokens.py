"""Position tokens: what a publish answers with and a read accepts as ``after=``. Opaque to everyone else.

A token names the log that its positions are of, so that one from another store is not taken for one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from events.errors import Refused
from events.event import Position

_PART = re.compile(r"(\d{1,5})\.(\d{1,15})-(\d{1,18})", re.ASCII)
_OF = "~"
_MARK = 8
"""Digits of the log's identity that a token carries."""


def write_token(positions: Iterable[tuple[int, Position]], log_id: str = "") -> str:
    """The token of a set of (partition, position) of a log: a read after it sees them all. Empty for none.

    >>> write_token([(3, Position(1, 7)), (0, Position(2, 0)), (3, Position(1, 5))], "c0ffee00c0ffee00")
    'c0ffee00~0.2-0_3.1-7'
    """
    last: dict[int, Position] = {}
    for partition, position in positions:
        last[partition] = max(position, last.get(partition, position))
    parts = "_".join(f"{partition}.{position}" for partition, position in sorted(last.items()))
    return f"{log_id[:_MARK]}{_OF}{parts}" if parts and log_id else parts


def read_token(token: str, log_id: str = "") -> dict[int, Position]:
    """The last position of each partition that a token names. Raises Refused for what is no token of this log.

    >>> read_token("c0ffee00~0.2-0_3.1-7", "c0ffee00c0ffee00")
    {0: Position(epoch=2, n=0), 3: Position(epoch=1, n=7)}
    """
    mark, of, parts = token.rpartition(_OF)
    positions: dict[int, Position] = {}
    for part in parts.split("_") if parts or of else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise Refused(f"{token[:80]!r} is no position token", code="bad_token", field="after")
        positions[int(match[1])] = Position(int(match[2]), int(match[3]))
    if of and log_id and mark != log_id[:_MARK]:
        raise Refused(
            f"{token[:80]!r} is a position token of another log: use the one that this backend's publish answered with",
            code="foreign_token",
            field="after",
        )
    return positions
