"""Which fields of results become which parameters of calls: counted, by names alone, never by values.

What a person wrote has the tool ``user``, a decision ``decision``, and no field. A name that is too long for one is
cut; keys that are values stand as ``*`` already (``facts``), so no value travels from task to task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.bounds import short
from projections.draft import Draft

MAX_SEEN = 128
"""Fields of one tool that are counted in a task, at most."""

MAX_FLOWS = 256
"""Flows into one tool that are counted in a task, at most."""

MAX_ORIGINS = 4
"""Places that a value is remembered to have stood in, at most."""

SEPARATOR = "\x1f"

Flow = tuple[str, str, str]
"""(tool, field, parameter): from where, to where."""


def seen(draft: Draft, agent: str, tool: str, fields: Sequence[str]) -> None:
    """These fields stood in one more result of the tool."""
    if fields:
        row = draft.edit("card_fields", short(agent), short(tool))
        row["seen"] = _counted(row["seen"], map(short, fields), MAX_SEEN)


def flowed(draft: Draft, agent: str, used_by: str, flows: Iterable[Flow]) -> None:
    """Values went into a call of a tool, each flow counted once."""
    names = [SEPARATOR.join(short(_one_line(name)) for name in flow) for flow in sorted(set(flows))]
    if names:
        row = draft.edit("card_flows", short(agent), short(used_by))
        row["counts"] = _counted(row["counts"], names, MAX_FLOWS)


def _counted(before: dict[str, int] | None, names: Iterable[str], limit: int) -> dict[str, int]:
    counts = dict(before or {})
    for name in names:
        if name in counts or len(counts) < limit:
            counts[name] = counts.get(name, 0) + 1
    return counts


def with_origin(origins: str, tool: str, field: str) -> str:
    """Where a value stood, and now stands in this field of this tool's result, too: a line each."""
    place = f"{tool}{SEPARATOR}{field}"
    if place.count(SEPARATOR) != 1 or "\n" in place:
        place = f"{_one_line(tool)}{SEPARATOR}{_one_line(field)}"
    if not origins or place == origins:
        return place
    known = origins.split("\n")
    return origins if place in known or len(known) >= MAX_ORIGINS else f"{origins}\n{place}"


def _one_line(name: str) -> str:
    return " ".join(name.replace(SEPARATOR, " ").split())


def places(origins: str) -> list[tuple[str, str]]:
    """The (tool, field) of each place that a value stood in."""
    return [(tool, field) for tool, _, field in (line.partition(SEPARATOR) for line in origins.split("\n"))]
