"""Position tokens: what a publish answers with and a read accepts as ``after=``. Opaque to everyone else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from events.errors import Refused
from events.event import Position

_PART = re.compile(r"(\d{1,5})\.(\d{1,15})-(\d{1,18})", re.ASCII)


def write_token(positions: Iterable[tuple[int, Position]]) -> str:
    """The token of a set of (partition, position): a read after it sees them all. Empty for none.

    >>> write_token([(3, Position(1, 7)), (0, Position(2, 0)), (3, Position(1, 5))])
    '0.2-0_3.1-7'
    """
    last: dict[int, Position] = {}
    for partition, position in positions:
        last[partition] = max(position, last.get(partition, position))
    return "_".join(f"{partition}.{position}" for partition, position in sorted(last.items()))


def read_token(token: str) -> dict[int, Position]:
    """The last position of each partition that a token names. Raises Refused for what is no token of ours.

    >>> read_token("0.2-0_3.1-7")
    {0: Position(epoch=2, n=0), 3: Position(epoch=1, n=7)}
    """
    positions: dict[int, Position] = {}
    for part in token.split("_") if token else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise Refused(f"{token[:80]!r} is no position token", code="bad_token", field="after")
        positions[int(match[1])] = Position(int(match[2]), int(match[3]))
    return positions
