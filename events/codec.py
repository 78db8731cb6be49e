"""The event's three written forms: flat fields on a stream, CloudEvents JSON over HTTP, a row of the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from events.event import Event

STREAM_FIELDS = (
    "id", "type", "source", "time", "org", "agent", "user", "session", "task", "run", "seq", "schemaversion",
    "causation", "correlation", "traceparent", "sanitized", "key", "digest", "data",
)  # fmt: skip
"""Fields of a log entry. ``key``, ``digest`` and ``sanitized`` are the door's, added to the publisher's own."""

_NUMBERS = {"seq", "schemaversion"}
_DEFAULT = {"seq": 0, "schemaversion": 1, "sanitized": False, "data": "{}"}


def to_fields(event: Event) -> list[str]:
    """Alternating names and values for XADD; empty fields and defaults are left out."""
    flat: list[str] = []
    for name in STREAM_FIELDS:
        value = getattr(event, name)
        if value != _DEFAULT.get(name, ""):
            flat += (name, "1" if value is True else str(value))
    return flat


def from_fields(fields: Mapping[bytes, bytes]) -> Event:
    """The event of a log entry. Only append writes log streams, so nothing is checked again."""
    values: dict[str, Any] = {}
    for raw_name, raw in fields.items():
        name, text = raw_name.decode(), raw.decode()
        values[name] = int(text) if name in _NUMBERS else text == "1" if name == "sanitized" else text
    return Event(**values)


def to_cloudevent(event: Event) -> dict[str, Any]:
    """CloudEvents 1.0 structured JSON: our fields are extension attributes, empty ones are left out."""
    value: dict[str, Any] = {"specversion": "1.0", "datacontenttype": "application/json"}
    for name in STREAM_FIELDS:
        field = getattr(event, name)
        if name not in ("key", "digest", "data") and field != _DEFAULT.get(name, ""):
            value[name] = field
    value["data"] = orjson.loads(event.data)
    return value
