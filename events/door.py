"""The one door. Every event enters here, whichever way it came: checked, sanitised, keyed, digested, or refused.

Ways in: CloudEvents JSON over HTTP (``read_json``), flat stream fields from the inbox (``read_fields``), and Python
values from importers and reactors (``admit``). All end in ``admit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson

from events import strict_json
from events.errors import NewerVersion, Poison, Refused
from events.event import Event
from events.keys import partition_key
from events.registry import EVENT_TYPES, decode_data
from events.times import check_time

MAX_EVENT_BYTES = 1 << 20
MAX_ID_CHARS = 128
MAX_NAME_CHARS = 256
MAX_SEQ = 2**53

_NAMES = ("source", "org", "agent", "user", "session", "task", "run", "causation", "correlation")
_TEXTS = ("id", "type", "time", "traceparent", *_NAMES)
_KNOWN = frozenset((*_TEXTS, "seq", "schemaversion", "data", "specversion", "datacontenttype", "dataschema", "subject"))
_NOT_CONTENT = ("time", "traceparent")


def read_json(raw: bytes) -> list[Any]:
    """The raw events of a request body: one CloudEvent or a list of them, not yet admitted.

    Raises Refused when the body as a whole is unreadable.
    """
    body = strict_json.loads(raw)
    if isinstance(body, strict_json.Hazard):
        raise Refused(body.message, code="bad_value")
    return body if isinstance(body, list) else [body]


def read_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """The raw event of one flat stream entry; ``data`` is JSON text. Raises Refused when it is unreadable."""
    value: dict[str, Any] = dict(fields)
    data = value.get("data")
    if data is not None:
        value["data"] = strict_json.loads(data.encode("utf-8", "surrogatepass"))
    for name in ("seq", "schemaversion"):
        text = value.get(name)
        if text is not None:
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise Refused(f"`{name}` is {text[:40]!r}, not a whole number", code="bad_field", field=name)
            value[name] = int(text)
    return value


def admit(raw: Any, *, org: str = "default", max_bytes: int = MAX_EVENT_BYTES, now: datetime | None = None) -> Event:
    """Admit one raw event: an object with CloudEvents attributes and ours as top-level members.

    ``org`` is used when the event names none. ``now`` (default: this moment) is its time when it gives none.
    Unknown top-level members are refused rather than dropped. Raises Refused with a code, the field and the fix.
    """
    if isinstance(raw, strict_json.Hazard):
        raise Refused(raw.message, code="bad_value")
    if not isinstance(raw, Mapping):
        raise Refused(f"an event is a JSON object, not {type(raw).__name__}", code="bad_event")
    original = dict(raw)
    value = strict_json.clean(original)
    sanitized = value != original
    _check_members(value)
    texts = {name: _text(value, name) for name in _TEXTS}
    texts["org"] = texts["org"] or org
    _check_limits(texts)
    data = value.get("data")
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise Refused(f"`data` is a JSON object, not {type(data).__name__}", code="bad_field", field="data")
    text = orjson.dumps(data)
    if len(text) > max_bytes:
        raise Refused(
            f"the event has {len(text):,} bytes, the limit is {max_bytes:,}: send head, tail and digest of large output",
            code="too_large",
            field="data",
            limit=max_bytes,
        )
    version = _whole(value, "schemaversion", default=1, least=1)
    seq = _whole(value, "seq", default=0, least=1)
    if seq and not texts["run"]:
        raise Refused("`seq` counts the events of a run: give `run`", code="missing_run", field="run")
    task = texts["task"] or texts["run"]
    key = _key_of(texts, task, version, text)
    time = check_time(texts["time"]) if texts["time"] else (now or datetime.now(UTC)).isoformat()
    texts.update(task=task, time=time)
    return Event(
        **texts,
        seq=seq,
        schemaversion=version,
        sanitized=sanitized,
        data=text.decode(),
        key=key,
        digest=_digest(texts, seq, version, data),
    )


def admit_all(raws: Iterable[Any], *, org: str = "default", max_bytes: int = MAX_EVENT_BYTES) -> list[Event | Refused]:
    """Admit many; a refused one stands in its place in the list and harms no other."""
    now = datetime.now(UTC)
    outcomes: list[Event | Refused] = []
    for raw in raws:
        try:
            outcomes.append(admit(raw, org=org, max_bytes=max_bytes, now=now))
        except Refused as refusal:
            outcomes.append(refusal)
    return outcomes


def _check_members(value: Mapping[str, Any]) -> None:
    for name in ("id", "type"):
        if not value.get(name):
            raise Refused(f"`{name}` is missing", code="missing_field", field=name)
    if value.get("specversion", "1.0") != "1.0":
        raise Refused(f"specversion {value['specversion']!r} is not 1.0", code="bad_field", field="specversion")
    unknown = value.keys() - _KNOWN
    if unknown:
        name = min(unknown)
        raise Refused(f"`{name}` is no member of an event: put it into `data`", code="unknown_field", field=name)


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Refused(f"`{name}` is text, not {type(text).__name__}", code="bad_field", field=name)
    return text


def _whole(value: Mapping[str, Any], name: str, *, default: int, least: int) -> int:
    number = value.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MAX_SEQ:
        raise Refused(f"`{name}` is a whole number from {least}, not {number!r:.40}", code="bad_field", field=name)
    return number


def _check_limits(texts: Mapping[str, str]) -> None:
    if len(texts["id"]) > MAX_ID_CHARS:
        raise Refused(f"`id` is longer than {MAX_ID_CHARS} characters", code="too_long", field="id")
    for name in _NAMES:
        if len(texts[name]) > MAX_NAME_CHARS:
            raise Refused(f"`{name}` is longer than {MAX_NAME_CHARS} characters", code="too_long", field=name)
        if "\x1f" in texts[name]:
            raise Refused(f"`{name}` contains the control character U+001F", code="bad_field", field=name)


def _key_of(texts: Mapping[str, str], task: str, version: int, data: bytes) -> str:
    """Partition key by the type's rule; checks the payload on the way. An unknown type is kept by task or scope."""
    who = {"task": task, "session": texts["session"], "user": texts["user"], "agent": texts["agent"]}
    kind = EVENT_TYPES.get(texts["type"])
    if kind is None:
        return partition_key("task" if task else "scope", None, **who)
    try:
        payload = decode_data(kind, version, data)
    except NewerVersion:
        # a newer publisher: stored now, folded after an upgrade, under the key its type has today
        payload = None
    except Poison as error:
        raise Refused(str(error), code="bad_data", field="data") from error
    return partition_key(kind.keyed_by, payload, **who)


def _digest(texts: Mapping[str, str], seq: int, version: int, data: dict[str, Any]) -> str:
    content = {name: text for name, text in texts.items() if text and name not in _NOT_CONTENT}
    canonical = orjson.dumps([content, seq, version, data], option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=16).hexdigest()
