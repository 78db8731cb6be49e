"""Streams of agent events as a log really gets them: all types, out of order, repeated, conflicting, late, broken.

An event is made of a golden one of its type, with names from small pools, so that calls find their results, steps
their plans, beliefs their evidence, and everything meets everything in an order that nobody intended.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson
from hypothesis import strategies as st

from events.door import admit
from events.errors import Refused
from events.event import Event

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "events.jsonl"
_LEFT_OUT = {"deadletter.discarded", "scope.erased"}
"""What changes how others are folded is made on purpose, not by chance."""

TEMPLATES = [
    raw
    for line in _GOLDEN.read_bytes().splitlines()
    if (raw := orjson.loads(line)["event"])["type"] not in _LEFT_OUT and "schemaversion" not in raw
]
for _raw in TEMPLATES:
    if "trigger" in _raw["data"]:  # the golden one is older than what a trigger may be
        _raw["data"]["trigger"] = {"field": "tool", "is": "pay"}

_POOLS: Mapping[str, Sequence[Any]] = {
    "step": ("s1", "s2", "s3"),
    "id": ("s1", "s2", "s3"),
    "call_id": ("c1", "c2", "c3"),
    "name": ("search_flights", "pay", "read_file"),
    "tool": ("search_flights", "pay", "read_file"),
    "key": ("budget", "seat"),
    "blocker": ("b1", "b2"),
    "approval": ("a1", "a2"),
    "checkpoint": ("k1", "k2"),
    "belief": ("b-pay", "b-seat"),
    "memory": ("m1", "m2"),
    "run": ("r0", "r1"),
    "version": (1, 2, 3),
    "deriver_version": (1, 2),
    "expected_version": (0, 1, 2),
    "reason": ("end_turn", "interrupt", "lost", "timeout", "panic_stop"),
    "scope": ("user", "user", "agent", "org"),
    "label": ("success", "recoverable_failure", "fatal_failure"),
    "status": ("pending", "completed", "in_progress"),
    "score": (-1.0, 0.5, 1.0),
    "approved": (True, False),
    "supports": (True, False),
    "late": (True, False),
    "milestone": (True, False),
    "result": ([{"flight": "NH107", "price": 812.5}], {"error": "sold out"}, "/src/main.py:17", None, {"count": 3}),
    "arguments": ({"flight": "NH107"}, {"path": "/src/main.py"}, {"price": 812.5, "seats": 2}, None),
    "content": ("NH107 at 812.5, please", "only the conclusion, please", {"max": 900}, "座位靠窗 \U00020000"),
    "text": ("only the conclusion, please", "too expensive"),
    "chosen": ("NH107", "UA837"),
}


class Made(NamedTuple):
    """How one event of a stream is made; ``back`` names an earlier one for those that repeat or discard one."""

    how: str
    template: int
    task: int
    salt: int
    back: int


def streams(max_size: int = 60) -> st.SearchStrategy[list[Made]]:
    """Streams of at most ``max_size`` events; most are plain ones."""
    how = ["plain"] * 12 + ["again", "conflict", "late", "unknown", "newer", "broken", "discard"]
    made = st.builds(
        Made, st.sampled_from(how), st.integers(0, len(TEMPLATES) - 1), st.integers(0, 3), st.integers(0, 10_000),
        st.integers(0, 30),
    )  # fmt: skip
    return st.lists(made, max_size=max_size)


def events_of(stream: Sequence[Made], projections: Sequence[str]) -> list[Event]:
    """The events of a stream, admitted; a discard names each of ``projections`` in turn."""
    events: list[Event] = []
    for index, made in enumerate(stream):
        earlier = events[-1 - made.back % len(events)] if events else None
        match made.how, earlier:
            case "again", Event():
                events.append(earlier)
            case "conflict", Event():
                other = _plain(index, made)
                events.append(msgspec.structs.replace(other, id=earlier.id, org=earlier.org, key=earlier.key))
            case "discard", Event():
                events.append(_discard(index, earlier, projections[made.salt % len(projections)]))
            case "broken", _:  # as an older, laxer door might have let it in
                event = _plain(index, made)
                events.append(msgspec.structs.replace(event, data='{"call_id": [], "step": 7}'))
            case "newer", _:
                events.append(msgspec.structs.replace(_plain(index, made), schemaversion=99))
            case "unknown", _:
                events.append(msgspec.structs.replace(_plain(index, made), type="step.rated"))
            case _:
                events.append(_plain(index, made))
    return events


def _plain(index: int, made: Made) -> Event:
    dice = random.Random(made.salt)
    template = TEMPLATES[made.template]
    task, run = f"t{made.task}", f"r{dice.randrange(2)}"
    raw = {
        **{name: template[name] for name in ("type", "source")},
        "id": f"e{index}", "time": f"2026-03-0{1 + dice.randrange(3)}T1{dice.randrange(10)}:00:00.{made.salt:05}+08:00",
        "org": dice.choice(("acme", "acme", "beta")), "agent": "coder", "user": dice.choice(("ada", "bo")),
        "session": f"s{dice.randrange(2)}", "task": task, "run": f"{task}-{run}",
    }  # fmt: skip
    try:
        return admit({**raw, "data": _varied(template["data"], dice)})
    except Refused:  # a variation that means nothing: the golden one does
        return admit({**raw, "data": template["data"]})


def _varied(value: Any, dice: random.Random, name: str = "") -> Any:
    if name in _POOLS and dice.random() < 0.8:
        return dice.choice(_POOLS[name])
    if isinstance(value, dict):
        return {key: _varied(each, dice, key) for key, each in value.items() if dice.random() < 0.97}
    if isinstance(value, list):
        return [_varied(each, dice) for each in value]
    return value


def _discard(index: int, event: Event, projection: str) -> Event:
    data = {"projection": projection, "event_id": event.id, "partition_key": event.key}
    return admit({"type": "deadletter.discarded", "id": f"e{index}", "org": event.org, "task": event.task or "t0",
                  "run": "r", "time": "2026-03-01T10:00:00Z", "data": data})  # fmt: skip
