"""Which calls follow which, and which fields of results become which of their parameters: counted, by names alone.

Values of prose have no field: they are counted under a digest of the words before them (``phrases.counted_as``).
What a person wrote has the tool ``user``, a decision ``decision``, and no field. A name that is too long for one is
cut; keys that are values stand as ``*`` already (``facts``), so no value travels from task to task.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from projections.bounds import short
from projections.draft import Draft

MAX_FLOWS = 256
"""Flows into one tool that are counted in a task, at most."""

MAX_ORIGINS = 6
"""Places that a value is remembered to have stood in, at most."""

SEPARATOR = "\x1f"

Flow = tuple[str, str, str]
"""(tool, field, parameter): from where, to where."""


def flowed(draft: Draft, agent: str, used_by: str, flows: Iterable[Flow]) -> None:
    """Values went into a call of a tool, each flow counted once."""
    names = [SEPARATOR.join(map(_named, flow)) for flow in sorted(set(flows))]
    if names:
        row = draft.edit("card_flows", short(agent), short(used_by))
        row["counts"] = _counted(row["counts"], names, MAX_FLOWS)


def called(draft: Draft, agent: str, tool: str) -> None:
    """A tool is called, after the one that this task called before."""
    task, name = draft.edit("card_needs"), short(tool)
    row = draft.edit("card_flows", short(agent), name)
    row["after"] = _counted(row["after"], (task["called"],), MAX_FLOWS)
    task["called"] = name


def _counted(before: dict[str, int] | None, names: Iterable[str], limit: int) -> dict[str, int]:
    counts = dict(before or {})
    for name in names:
        if name in counts or len(counts) < limit:
            counts[name] = counts.get(name, 0) + 1
    return counts


@lru_cache(maxsize=8_192)
def places_of(tool: str, fields: tuple[str, ...]) -> str:
    """Where a value stands under one or several names, a line each."""
    return "\n".join(f"{_one_line(tool)}{SEPARATOR}{_one_line(field)}" for field in fields)


@lru_cache(maxsize=8_192)
def with_places(origins: str, places: str) -> str:
    """The places of a value, a line each, with some more; the first ``MAX_ORIGINS`` are kept."""
    if places == origins:
        return origins
    known = dict.fromkeys((*origins.split("\n"), *places.split("\n")))
    return "\n".join(list(known)[:MAX_ORIGINS])


@lru_cache(maxsize=8_192)
def _named(name: str) -> str:
    return short(_one_line(name))


def _one_line(name: str) -> str:
    return " ".join(name.replace(SEPARATOR, " ").split())


def places(origins: str) -> list[tuple[str, str]]:
    """The (tool, field) of each place that a value stood in."""
    return [(tool, field) for tool, _, field in (line.partition(SEPARATOR) for line in origins.split("\n"))]
