"""Wishes about conduct that go against each other, as evidence. Pure.

A wish speaks against every rule that asks for the opposite under the same condition and was asked for before it, by the
times of what was said. So what speaks against what is a function of the set of wishes, in whatever order they are read:
the later read of two looks both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from events.event import Event
from events.ids import named_id
from events.times import instant
from services.promotion.rulebook import Rulebook

_COPIED = ("type", "source", "time", "org", "agent", "user", "session", "task", "run", "causation", "correlation")


def oppositions(voice: Event, known: Rulebook) -> list[dict[str, Any]]:
    """Raw evidence against rules: of a wish that the promoter has published, and of later ones against its rule."""
    return [raw for raw in _oppositions(voice, known) if raw["id"] not in known.ids]


def _oppositions(voice: Event, known: Rulebook) -> Iterator[dict[str, Any]]:
    rule, at = orjson.loads(voice.data)["belief"], instant(voice.time)
    ask = known.ask_of(rule)
    if ask is None or rule not in known.proposed:
        return
    for name in sorted(known.against(*ask)):
        since = known.since.get(name)
        if since is None:
            continue  # it is on its way to the log: its own wish is read after this one
        if since < at:
            yield _against(voice, name)
        if at <= known.since[rule]:  # else an earlier wish for it looks at the later ones
            yield from (_against(one, rule) for one in known.voices.get(name, ()) if instant(one.time) > at)


def _against(voice: Event, rule: str) -> dict[str, Any]:
    """The same words on the same occasion, against a rule. Its id follows from theirs."""
    copied = {name: value for name in _COPIED if (value := getattr(voice, name))}
    data = {**orjson.loads(voice.data), "belief": rule, "supports": False}
    name = "\x1f".join((voice.source, voice.org, voice.key, voice.id, rule))
    return {**copied, "id": named_id(name, instant(voice.time)), "data": data}
