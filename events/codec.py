"""The event's three written forms: flat fields on a stream, CloudEvents JSON over HTTP, a row of the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from events.errors import Refused
from events.event import Event
from events.times import check_time

STREAM_FIELDS = (
    "id", "type", "source", "time", "org", "agent", "user", "session", "task", "run", "seq", "schemaversion",
    "causation", "correlation", "traceparent", "sanitized", "key", "digest", "data",
)  # fmt: skip
"""Fields of a log entry. ``key``, ``digest`` and ``sanitized`` are the door's, added to the publisher's own."""

_MOST = 2**53  # as the door has it
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
    """The event of a log entry. Raises TypeError or ValueError for one that no append can have written.

    Only append is meant to write there, so this checks what would stop a store or a reader, not all that the door does.
    """
    values: dict[str, Any] = {}
    for raw_name, raw in fields.items():
        name, text = raw_name.decode(), raw.decode()
        if "\0" in text:
            raise ValueError(f"{name} holds a NUL")
        values[name] = _number(name, text) if name in _NUMBERS else text == "1" if name == "sanitized" else text
    event = Event(**values)
    if not isinstance(orjson.loads(event.data), dict):
        raise TypeError("data is no JSON object")
    try:
        check_time(event.time)
    except Refused as refused:
        raise ValueError(str(refused)) from refused
    return event


def _number(name: str, text: str) -> int:
    number = int(text)
    if not 0 <= number <= _MOST:
        raise ValueError(f"{name} is {text:.40}")
    return number


def to_cloudevent(event: Event) -> dict[str, Any]:
    """CloudEvents 1.0 structured JSON: our fields are extension attributes, empty ones are left out.

    Data that are no JSON (something else than append wrote the event) stand there as text.
    """
    value: dict[str, Any] = {"specversion": "1.0", "datacontenttype": "application/json"}
    for name in STREAM_FIELDS:
        field = getattr(event, name)
        if name not in ("key", "digest", "data") and field != _DEFAULT.get(name, ""):
            value[name] = field
    try:
        value["data"] = orjson.loads(event.data)
    except orjson.JSONDecodeError:
        value["data"] = event.data
    return value
