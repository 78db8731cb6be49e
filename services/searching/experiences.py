"""Searching the experiences of a scope by likeness: what was tried when something like this was asked for. Pure.

A user's sheet is searched by what was asked, what came of it and why, what people said of it, and the tools; an
agent's, which holds no words of anybody, by its tools and how they ended. Passages are those of cards: a sheet is as
like a query as its best passage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projections.retrieval.likeness import Like, alike
from projections.retrieval.text import windows_of

MOST = 2_000
"""Experiences of a scope that a search looks at: the latest."""

MEANT = 3
"""Passages of an experience that are compared by their meaning, the first: what was asked, and how it went."""

_FAILED = ("recoverable_failure", "fatal_failure")


def passages_of(experience: dict[str, Any]) -> list[str]:
    """What an experience is found by: what was asked, and apart from that what became of it."""
    sheet = experience.get("sheet") or {}
    asked = windows_of([str(sheet.get("input_summary") or "")])
    return list(dict.fromkeys([*asked, *windows_of(_became(experience, sheet))]))


def meant(passages: Sequence[Sequence[str]]) -> list[str]:
    """The passages of all experiences that are compared by their meaning, in a row."""
    return [text for of in passages for text in of[:MEANT]]


def ranked(passages: Sequence[Sequence[str]], query: str, cosines: NDArray[np.float64] | None) -> list[Like]:
    """The experiences, by their passages, that are like the query, the best first. ``cosines``: of those ``meant``."""
    meaning = None if cosines is None else _best([min(len(of), MEANT) for of in passages], cosines)
    return alike(["\n".join(of) for of in passages], query, meaning)


def _became(experience: dict[str, Any], sheet: dict[str, Any]) -> Iterator[str]:
    yield str(sheet.get("cause") or "")
    yield str(sheet.get("output") or "")
    yield from (str(given.get("text") or "") for given in _list(sheet, "feedback") if isinstance(given, dict))
    nodes = experience.get("nodes") or ()
    yield from dict.fromkeys(f"{one.get('tool', '')}: {one['cause']}" for one in nodes if one.get("cause"))
    yield str(experience.get("path") or "") or ", ".join(map(str, _list(sheet, "tools")))
    counts = experience.get("counts") or ()
    yield from (f"{one['tool']} failed" for one in counts if one["label"] in _FAILED and one.get("count"))


def _list(sheet: dict[str, Any], name: str) -> list[Any]:
    """A list of a sheet; empty where something else stands: sheets of other makers have any form."""
    value = sheet.get(name)
    return value if isinstance(value, list) else []


def _best(lengths: Sequence[int], cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """The greatest cosine of each so many in a row; NaN where none is known."""
    ends = list(chain((0,), np.cumsum(lengths).tolist()))
    best = np.full(len(lengths), np.nan)
    for number, (start, end) in enumerate(pairwise(ends)):
        known = cosines[start:end][~np.isnan(cosines[start:end])]
        if len(known):
            best[number] = known.max()
    return best
