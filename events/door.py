"""The one door. Every event enters here, whichever way it came: checked, sanitised, keyed, digested, or refused.

Ways in: CloudEvents JSON over HTTP (``read_json``), flat stream fields from the inbox (``read_fields``), and Python
values from importers and reactors. All end in ``admit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
import orjson

from events import strict_json
from events.errors import NewerVersion, Poison, Refused
from events.event import Event
from events.keys import Undecoded, partition_key, task_key
from events.registry import EVENT_TYPES, decode_data
from events.times import check_time

MAX_EVENT_BYTES = 1 << 20

Name = Annotated[str, msgspec.Meta(max_length=256)]
Whole = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event as a publisher writes it: CloudEvents attributes and ours as top-level members; null is absent.

    CloudEvents' ``dataschema`` and ``subject`` may stand there and are not kept. ``sanitized`` comes with events that
    Refold has exported.
    """

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    source: Name | None = None
    time: str | None = None
    org: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    session: Name | None = None
    task: Name | None = None
    run: Name | None = None
    seq: Whole | None = None
    schemaversion: Whole | None = None
    causation: Name | None = None
    correlation: Name | None = None
    traceparent: Name | None = None
    sanitized: bool | None = None
    data: Any = None
    specversion: Literal["1.0"] | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    subject: str | None = None


def read_json(raw: bytes) -> list[Any]:
    """The raw events of a request body: one CloudEvent or a list of them, not yet admitted.

    Raises Refused when the body as a whole is unreadable.
    """
    return strict_json.loads_many(raw)


def read_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """The raw event of one flat stream entry; ``data`` is JSON text. What cannot be read is left for ``admit`` to name.

    An empty field is an absent one, as in the log.

    Bytes that are no UTF-8 belong in the text as ``errors="surrogateescape"`` leaves them.
    """
    value: dict[str, Any] = {name: text for name, text in fields.items() if text}
    if "data" in value:
        try:
            value["data"] = strict_json.loads(value["data"].encode("utf-8", "surrogatepass"))
        except Refused as refusal:
            value["data"] = strict_json.Hazard(str(refusal), refusal.code)
    for name in ("seq", "schemaversion"):
        text = value.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 20:
            value[name] = int(text)
    if value.get("sanitized") in ("1", "true"):
        value["sanitized"] = True
    return value


def admit(raw: Any, *, org: str = "default", max_bytes: int = MAX_EVENT_BYTES, now: str = "") -> Event:
    """Admit one raw event: an object with the members of ``Envelope``.

    ``org`` is used when the event names none, ``now`` (RFC 3339; default: this moment) when it gives no time. Unknown
    members are refused rather than dropped. Raises Refused with a code, the field and the fix.
    """
    if isinstance(raw, strict_json.Hazard):
        raise Refused(raw.message, code=raw.code)
    if not isinstance(raw, dict):
        raise Refused(f"an event is a JSON object, not {type(raw).__name__}", code="bad_event")
    value, sanitized = strict_json.sanitise(raw)
    envelope = _envelope(value)
    data = envelope.data if envelope.data is not None else {}
    text = _data_text(data, max_bytes)
    version = envelope.schemaversion or 1
    run = envelope.run or ""
    who = {
        "org": envelope.org or org,
        "agent": envelope.agent or "",
        "user": envelope.user or "",
        "session": envelope.session or "",
        "task": envelope.task or run,
        "run": run,
    }
    _check_names(envelope, who)
    key = _key_of(envelope.type, version, data, text, who)
    _check_seq(envelope, key, who)
    known: dict[str, Any] = {
        "id": envelope.id,
        "type": envelope.type,
        "source": envelope.source or "",
        **who,
        "seq": envelope.seq or 0,
        "schemaversion": version,
        "causation": envelope.causation or "",
        "correlation": envelope.correlation or "",
    }
    return Event(
        **known,
        time=check_time(envelope.time) if envelope.time else now or _now(),
        traceparent=envelope.traceparent or "",
        sanitized=sanitized or envelope.sanitized is True,
        data=text.decode(),
        key=key,
        digest=_digest(known, data),
    )


def admit_all(raws: Iterable[Any], *, org: str = "default", max_bytes: int = MAX_EVENT_BYTES) -> list[Event | Refused]:
    """Admit many; a refused one stands in its place in the list and harms no other."""
    now = _now()
    outcomes: list[Event | Refused] = []
    for raw in raws:
        try:
            outcomes.append(admit(raw, org=org, max_bytes=max_bytes, now=now))
        except Refused as refusal:
            outcomes.append(refusal)
    return outcomes


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _envelope(value: dict[str, Any]) -> Envelope:
    try:
        return msgspec.convert(value, Envelope)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error


def _explained(message: str) -> Refused:
    """Our refusal for msgspec's message, such as ``Expected `str`, got `int` - at `$.run```."""
    said, _, place = message.partition(" - at `$.")
    name = place.rstrip("`") or message.split("`")[1]
    if "missing required" in message or "length >= 1" in message:
        return Refused(f"`{name}` is missing", code="missing_field", field=name)
    if "unknown field" in message:
        return Refused(f"`{name}` is no member of an event: put it into `data`", code="unknown_field", field=name)
    if "Invalid enum value" in message:
        return Refused(f"`{name}` must be 1.0, the version of CloudEvents", code="bad_field", field=name)
    code = "too_long" if "length <=" in message else "bad_field"
    said = said.removeprefix("Expected ").replace(" | null", "").replace("`", "")
    return Refused(f"`{name}` must be {said}", code=code, field=name)


def _data_text(data: Any, max_bytes: int) -> bytes:
    if not isinstance(data, dict):
        raise Refused(f"`data` is a JSON object, not {type(data).__name__}", code="bad_field", field="data")
    text = orjson.dumps(data)
    if len(text) > max_bytes:
        raise Refused(
            f"the event has {len(text):,} bytes, the limit is {max_bytes:,}: send head, tail, digest of large output",
            code="too_large",
            field="data",
            limit=max_bytes,
        )
    return text


def _check_names(envelope: Envelope, who: Mapping[str, str]) -> None:
    """U+001F parts the names in keys and hashes."""
    if "\x1f" in f"{envelope.id}{who['org']}{who['agent']}{who['user']}{who['session']}{who['task']}{who['run']}":
        name = next(name for name, text in (("id", envelope.id), *who.items()) if "\x1f" in text)
        raise Refused(f"`{name}` contains the control character U+001F", code="bad_field", field=name)


def _check_seq(envelope: Envelope, key: str, who: Mapping[str, str]) -> None:
    """A ``seq`` counts the events of a run that are kept with its task: a number used elsewhere would leave a hole."""
    if not envelope.seq:
        return
    if not who["run"]:
        raise Refused("`seq` counts the events of a run: give `run`", code="missing_run", field="run")
    if key != task_key(who["task"]):
        raise Refused(
            f"`seq` counts the events of the run's task, and {envelope.type} is kept under {key}: leave `seq` out",
            code="bad_field",
            field="seq",
        )


def _key_of(type_: str, version: int, data: dict[str, Any], text: bytes, who: Mapping[str, str]) -> str:
    """Partition key by the type's rule; checks the payload on the way. An unknown type is kept by task or scope."""
    kind = EVENT_TYPES.get(type_)
    if kind is None:
        return partition_key("task" if who["task"] else "scope", None, who)
    if data.get("confidence", 0) is None:
        raise Refused("`confidence` is null: give 0 to 1, or leave it out", code="bad_data", field="data.confidence")
    try:
        payload: Any = decode_data(kind, version, text)
    except NewerVersion:
        # a newer publisher: stored now, folded after an upgrade, under the key that today's rule gives
        payload = Undecoded(data)
    except Poison as error:
        place = str(error).partition(" at `$")[2].partition("`")[0]
        raise Refused(str(error), code="bad_data", field=f"data{place}") from error
    else:
        if kind.check is not None:
            kind.check(payload)
    return partition_key(kind.keyed_by, payload, who)


def _digest(known: Mapping[str, Any], data: dict[str, Any]) -> str:
    canonical = orjson.dumps([[*known.values()], data], option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=16).hexdigest()
