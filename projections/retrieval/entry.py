"""What a scope index remembers of a card beside its words and vectors: what filters, ranking and validity ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import Any, NamedTuple

from events.times import instant

EPOCH_S = 0.0


class Entry(NamedTuple):
    """A card. ``key`` owns its row; ``as_of_s`` is its time in seconds since 1970; ``ttl_s`` is None without an end."""

    card: str
    key: str
    source: str
    trust: str
    tool: str
    status: str
    superseded_by: str
    as_of: str
    as_of_s: float
    ttl_s: float | None
    agent: str
    user: str
    session: str
    run: str
    task: str
    entity: tuple[str, ...]
    attribute: str
    fields: tuple[str, ...]
    values: tuple[str, ...]
    excludes: bool
    value: int
    uses: int
    seen: int
    partition: int
    used_by: frozenset[str]
    triggers: frozenset[str]

    def ends_s(self) -> float:
        """When it expires, in seconds since 1970; infinite where it does not."""
        return float("inf") if self.ttl_s is None else self.as_of_s + self.ttl_s


def entry_of(
    row: Mapping[str, Any], used_by: frozenset[str] = frozenset(), triggers: frozenset[str] = frozenset()
) -> Entry:
    """The entry of a row of ``cards``. ``used_by``: calls and decisions; ``triggers``: words of what those were."""
    told = instant(row["as_of"]) if row["as_of"] else None
    return Entry(
        card=row["card"],
        key=intern(row["key"]),
        superseded_by=row["superseded_by"] or "",
        as_of=row["as_of"] or "",
        as_of_s=told.timestamp() if told else EPOCH_S,
        ttl_s=row["ttl_s"],
        entity=_texts(row["entity"]),
        fields=_texts(row["fields"]),
        values=tuple(dict.fromkeys((*_texts(row["values"]), *_days(told)))),
        excludes=bool(row["excludes"]),
        value=row["value"],
        uses=row["uses"],
        seen=row["seen"],
        partition=row["partition"],
        used_by=used_by,
        triggers=triggers,
        **{name: intern(row[name] or "") for name in _NAMES},
    )


_NAMES = ("source", "trust", "tool", "status", "agent", "user", "session", "run", "task", "attribute")


def _texts(values: Sequence[Any] | None) -> tuple[str, ...]:
    return tuple(intern(str(value)) for value in values or ())


def _days(told: datetime | None) -> tuple[str, ...]:
    """The day of a card in the forms that a date in a query has, so that "on May 2" finds what was said that day."""
    return (intern(told.strftime("%Y-%m-%d")), intern(told.strftime("--%m-%d"))) if told else ()
