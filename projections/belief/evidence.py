"""Evidence for and against beliefs, as integer counts by UTC day; and what must be known to take a piece back.

A *source* (a run, a verification's occasion, a feedback's) counts once for a belief, by one of its events: which one is
a matter of the events alone, never of the order they came in. ``latest`` holds the latest sources of a belief by (time,
source), where a source's time is the latest of all its events that named the belief. Since that only ever grows, the
list is exact although it is bounded: what has once been pushed out by later sources can come back only by an event of
its own. A source that says nothing in the end keeps its place and speaks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from projections.belief.naming import kind_of
from projections.belief.tables import SPEAKS_AGAINST
from projections.bounds import clip, short, whole
from projections.draft import Draft

MAX_LATEST = 8
"""Latest sources kept on a belief: more than the failures in a row that any sensible rule asks for."""
MAX_BECAUSE = 32
"""Event ids kept with a piece of evidence."""
TEXT_LIMIT = 1_000

_EPOCH = date(1970, 1, 1).toordinal()


class Source(NamedTuple):
    """Where a piece of evidence comes from. ``time`` is UTC, in ISO 8601 with an offset."""

    key: str
    kind: str
    event_id: str
    time: str
    run: str = ""
    because: Sequence[str] = ()
    detail: str = ""
    by: str = ""


def day_of(time: str) -> int:
    """The bucket of a UTC time: whole days since 1970-01-01."""
    return date.fromisoformat(time[:10]).toordinal() - _EPOCH


def belief_row(draft: Draft, name: str) -> dict[str, Any]:
    """The belief of this name, to change in place."""
    row = draft.edit("beliefs", short(name))
    if not row["kind"]:
        row["full"], row["kind"] = whole(name), kind_of(name)
    return row


def weigh(draft: Draft, belief: dict[str, Any], source: Source, counts: Mapping[str, int]) -> None:
    """The source says this of the belief, and nothing else any more. Without counts it is kept as having no say."""
    name = belief["belief"]
    before = draft.peek("evidence", name, source.key)
    said: Mapping[str, int] = {} if before is None else before["counts"]
    belief["evidence"] += bool(counts) - bool(said)
    if before is not None:
        _count(draft, name, before["time"], said, -1)
    draft.put(("evidence", name, source.key), {
        "belief": name, "source": source.key, "kind": source.kind, "event_id": source.event_id, "run": source.run,
        "counts": dict(counts), "because": list(source.because[:MAX_BECAUSE]),
        "detail": clip(source.detail, TEXT_LIMIT), "by": source.by, "time": source.time,
    })  # fmt: skip
    _count(draft, name, source.time, counts, 1)
    place(belief, source.key, source.time, counts)


def withdraw(draft: Draft, belief: dict[str, Any], source: str) -> None:
    """The source says nothing of the belief any more."""
    name = belief["belief"]
    row = draft.peek("evidence", name, source)
    if row is None:
        return
    _count(draft, name, row["time"], row["counts"], -1)
    belief["evidence"] -= 1
    draft.drop("evidence", name, source)
    place(belief, source, row["time"], {})


def mention(draft: Draft, belief: dict[str, Any], source: str, time: str) -> None:
    """An event of the source that counts for nothing named the belief."""
    row = draft.peek("evidence", belief["belief"], source)
    place(belief, source, time, {} if row is None else row["counts"])


def place(belief: dict[str, Any], source: str, time: str, counts: Mapping[str, int]) -> None:
    """The source, and what it says, in its place among the latest ones."""
    others = belief["latest"] or []
    known = next((entry for entry in others if entry[1] == source), None)
    if known is not None:
        time = max(time, known[0])
        others = [entry for entry in others if entry is not known]
    entry = [time, source, *tally(counts)]
    entries = [*others, entry]
    if others and entry < others[-1]:
        entries.sort()
    belief["latest"] = entries[-MAX_LATEST:]


def tally(counts: Mapping[str, int]) -> tuple[int, int]:
    """How much of what a source says speaks against the belief, and how much there is of it."""
    return sum(number for label, number in counts.items() if label in SPEAKS_AGAINST), sum(counts.values())


def _count(draft: Draft, belief: str, time: str, counts: Mapping[str, int], sign: int) -> None:
    if not counts:
        return
    day = day_of(time)
    bucket = draft.edit("belief_counts", belief, day)
    for label, number in counts.items():
        bucket[label] += sign * number
    if sign < 0 and not any(value for name, value in bucket.items() if name not in ("belief", "day")):
        draft.drop("belief_counts", belief, day)
