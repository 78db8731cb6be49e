"""Which fields of results the next call is likely to take a value of, by what followed the last call before.

The next call is one of those that followed the same call (the chance of each by how often it did, joined with how often
it is called at all), and takes from each field what calls of it took. All of it is counted by names (``cards.flows``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

ANY = 1.0
"""Calls after the last one that what is called at all weighs as much as."""

DIGITS = 4
"""Decimals of a chance: it is recorded with each context."""


class Expected(NamedTuple):
    """What calls take: (tool, field) -> how likely the next one takes a value of it, learned of so many ``calls``."""

    chances: Mapping[tuple[str, str], float]
    calls: int


def expect(
    followed: Mapping[str, Mapping[str, int]], takes: Mapping[str, Mapping[tuple[str, str], int]], last: str
) -> Expected:
    """What the call after one of ``last`` takes (``""``: the first of a task).

    ``followed``: tool -> tool called before it -> how often. ``takes``: tool -> (tool, field) -> how many of its calls
    took a value of it. Tools of which no call was counted say nothing (the rows of former code tell of none).
    """
    calls = {tool: count for tool, before in sorted(followed.items()) if (count := sum(before.values()))}
    total = sum(calls.values())
    after = sum(before.get(last, 0) for before in followed.values())
    chances: defaultdict[tuple[str, str], float] = defaultdict(float)
    for tool, count in calls.items():
        next_one = (followed[tool].get(last, 0) + ANY * count / total) / (after + ANY)
        for place, taken in takes.get(tool, {}).items():
            chances[place] += next_one * min(1.0, taken / count)
    return Expected({place: round(chance, DIGITS) for place, chance in chances.items()}, total)
