"""The labelled set of proposals, English and Chinese, of our own making: what should become of each, and what does.

A line is one proposal with what its scope knows ``before``. ``split``: ``a`` to ``c`` shaped the rules; ``d`` was made
to be hard after that, with other words, and then shaped them a little. ``e`` (153 proposals) and ``f`` (89) were
written by somebody who had not seen the rules, ``g`` (79) after they had been mended by ``e`` and ``f``; each was
measured once before it shaped anything, without a model (precision, recall):

===========  ==========  ==========  ==========
class        e           f           g
===========  ==========  ==========  ==========
admitted     0.42 0.89   0.57 0.87   0.48 0.93
duplicate    0.92 0.55   1.00 0.58   1.00 0.50
conflict     0.92 0.46   1.00 0.80   1.00 0.64
noise        0.75 0.75   0.83 1.00   0.86 0.92
secret       1.00 0.87   1.00 0.77   1.00 0.91
instruction  1.00 0.70   1.00 1.00   1.00 0.73
own          1.00 0.83   1.00 1.00   1.00 1.00
===========  ==========  ==========  ==========

What is missed enters memory as one statement more: the precision of ``admitted`` says how much of that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from services.curation.decisions import decide_all
from services.curation.statements import gist
from services.curation.view import ScopeView, unseen
from tests.unit.fold_runner import event, record

LABELS = Path(__file__).parent.parent / "fixtures" / "memory_labels.jsonl"
CLASSES = ("admitted", "duplicate", "conflict", "noise", "secret", "instruction", "own")
_REASONS = {"credentials": "secret", "duplicate": "duplicate", "instruction": "instruction", "own_output": "own"}

Embed = Callable[[Sequence[str]], Any]


class Figures(NamedTuple):
    """Of one class: how many of those found are right, how many of those there are were found, how many there are."""

    precision: float
    recall: float
    count: int


def cases(splits: str = "abcd") -> list[dict[str, Any]]:
    """The labelled proposals."""
    found = [orjson.loads(line) for line in LABELS.read_bytes().splitlines()]
    return [case for case in found if case["split"] in splits]


def view_of(case: dict[str, Any], embed: Embed | None = None) -> ScopeView:
    """A scope that knows what stood before, and in which the proposal waits."""
    view, known = ScopeView(), case["before"]
    raws = [
        event("memory.admitted", n, user="u1", memory=f"m{n}", scope="user", **memory) for n, memory in enumerate(known)
    ]
    given = {"content": case["content"], "kind": case["kind"], "scope": "user"}
    view.advance(record([*raws, event("memory.proposed", len(raws), user="u1", **given)]))
    if embed is not None:
        texts = unseen(view, [case["content"]])
        view.vectors.update(zip(texts, embed([gist(text) for text in texts]), strict=True))
    return view


def class_of(case: dict[str, Any], embed: Embed | None = None) -> str:
    """What becomes of a proposal, as one of ``CLASSES``."""
    first, *more = decide_all(view_of(case, embed))
    if first.type == "memory.rejected":
        return _REASONS.get(first.data["reason"], "noise")
    if first.data["trust"] == "data":
        return "instruction"
    return "conflict" if more else "admitted"


def measure(labelled: Sequence[dict[str, Any]], embed: Embed | None = None) -> Iterator[tuple[str, Figures]]:
    """Precision and recall, class by class."""
    pairs = Counter((case["label"], class_of(case, embed)) for case in labelled)
    for name in CLASSES:
        right = pairs[name, name]
        there = sum(count for (label, _), count in pairs.items() if label == name)
        found = sum(count for (_, got), count in pairs.items() if got == name)
        yield name, Figures(right / found if found else 1.0, right / there if there else 1.0, there)
