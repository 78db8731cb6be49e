"""What is still good in a damaged spool file: its events, apart from what is none; no hole in a run's numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from refold.envelope import Draft, Scope, envelope

FILLER = "publication.refused"
"""The type of the small event that takes the number of one that the backend will never have."""

MAX_HOLE = 10_000
"""A wider gap between two numbers of a run is a damaged number, not so many lost events."""

_LEAST_BYTES = 200
"""An event with a number is hardly shorter; tells how many a damaged stretch may have held."""

_NAMES = tuple(vars(Scope()))


@dataclass
class Mended:
    """``lines`` to send, in order; ``damaged`` lines that are no events; ``filled`` how many numbers were filled."""

    lines: list[bytes] = field(default_factory=list)
    damaged: list[bytes] = field(default_factory=list)
    filled: int = 0


def event_of(line: bytes) -> dict[str, Any] | None:
    """The event that a line holds, or None: no JSON object, no id or type, or a name or number that cannot be."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and _can_be(event) else None


def filler(event: dict[str, Any], seq: int, **data: str) -> bytes:
    """The event that takes the number ``seq`` in the run of ``event``; ``data`` says why."""
    scope = Scope(**{name: event[name] for name in _NAMES if name in event})
    return orjson.dumps(envelope(Draft(FILLER, data), scope, seq=seq))


def mend(raw: bytes, *, fill: bool = True) -> Mended:
    """Read a file. A torn last line (power cut) was never promised, and is skipped without a word.

    Without ``fill`` holes in a run's numbers stay: where events build upon each other, a hole loses what follows.
    """
    *whole, last = raw.split(b"\n")
    mended = Mended()
    latest: dict[tuple[str, str], int] = {}
    lost = 0
    for line in [*whole, last] if event_of(last) else whole:
        event = event_of(line)
        if event is not None:
            for seq in _missing(event, latest, lost) if fill else ():
                mended.lines.append(filler(event, seq, code="damaged", message="lost in a damaged spool file"))
                mended.filled += 1
            mended.lines.append(line)
        elif line.strip():
            mended.damaged.append(line)
            lost += 1 + len(line) // _LEAST_BYTES
    return mended


def _missing(event: dict[str, Any], latest: dict[tuple[str, str], int], lost: int) -> Iterator[int]:
    """The numbers of a run that should stand before this event, and do not.

    A file may begin anywhere in a run. So before the run's first event here as many are missing as the damage above it
    may have held; the backend, which knows better, takes of these only what it lacks.
    """
    if "seq" not in event:
        return
    run, seq = (event.get("task", ""), event["run"]), event["seq"]
    after = latest.get(run, max(0, seq - 1 - min(lost, MAX_HOLE)))
    if seq - after > MAX_HOLE + 1:
        return
    latest[run] = max(after, seq)
    yield from range(after + 1, seq)


def _can_be(event: dict[str, Any]) -> bool:
    if not all(isinstance(event.get(name), str) and event[name] for name in ("id", "type")):
        return False
    try:
        Scope(**{name: event[name] for name in _NAMES if name in event})
    except (TypeError, ValueError):
        return False
    if not all(isinstance(event.get(name, ""), str) for name in _NAMES):
        return False
    seq = event.get("seq", 1)
    return type(seq) is int and seq > 0 and ("seq" not in event or bool(event.get("run"))) and "data" in event
