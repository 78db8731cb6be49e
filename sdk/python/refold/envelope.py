"""Building events: the envelope around what a run has to say. Pure, apart from ids and the clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import orjson

from refold import ids

MAX_NAME_CHARS = 256


class Wait(Enum):
    """How long recording waits for its event to be durable."""

    NO = "no"
    """Not at all: it goes out in the background."""
    SOFT = "soft"
    """Until it is durable in the backend or, when that is away, on this machine's disk; never raises Unavailable."""
    HARD = "hard"
    """Until it is durable in the backend; raises Unavailable when that does not answer in time."""


@dataclass(frozen=True)
class Draft:
    """An event before it has an envelope.

    ``counted`` events take the next number of their run; the numbers are checked by partition, so what lives with a
    session or a scope has none. ``must_pass``: raise Refused in the agent when the backend refuses it. ``run`` is an
    earlier attempt that the event belongs to.
    """

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    wait: Wait = Wait.NO
    counted: bool = True
    must_pass: bool = False
    run: str | None = None


@dataclass(frozen=True)
class Scope:
    """Who and what an event belongs to: the envelope's names."""

    org: str = ""
    agent: str = ""
    user: str = ""
    session: str = ""
    task: str = ""
    run: str = ""
    source: str = "refold-sdk"

    def __post_init__(self) -> None:
        for name, text in vars(self).items():
            if len(text) > MAX_NAME_CHARS or "\x1f" in text:
                raise ValueError(f"`{name}` is at most {MAX_NAME_CHARS} characters without control characters")

    def narrow(self, **names: str | None) -> Scope:
        """The scope with the given names set; None leaves a name as it is."""
        return replace(self, **{name: text for name, text in names.items() if text is not None})


def envelope(draft: Draft, scope: Scope, *, seq: int = 0, correlation: str = "") -> dict[str, Any]:
    """The CloudEvents form of a draft, with an id and a time of its own; empty members are left out."""
    event: dict[str, Any] = {"specversion": "1.0", "id": ids.uuid7(), "type": draft.type, "time": ids.now()}
    event.update((name, text) for name, text in vars(scope.narrow(run=draft.run)).items() if text)
    if seq:
        event["seq"] = seq
    if correlation:
        event["correlation"] = correlation
    event["data"] = draft.data
    return event


def flat(event: dict[str, Any]) -> dict[str, str | int]:
    """The flat fields of an inbox entry. No ``seq``: the inbox keeps no order among its readers."""
    fields = {name: value for name, value in event.items() if name not in ("seq", "specversion", "data")}
    return {**fields, "data": orjson.dumps(event["data"]).decode()}
