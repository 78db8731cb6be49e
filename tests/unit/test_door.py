"""The door: what is admitted, what is refused, and with which words."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from events import door
from events.errors import Refused
from events.event import Event

STEP: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "type": "step.started",
    "source": "test",
    "time": "2026-03-01T10:00:00Z",
    "task": "t1",
    "run": "r1",
    "data": {"step": "s1"},
}
CALL = STEP | {"type": "tool.called", "data": {"call_id": "c1", "name": "search", "arguments": {}}}


def only(body: str | bytes) -> Event:
    """The one event of a JSON body. Raises its refusal."""
    outcomes = door.admit_all(door.read_json(body.encode() if isinstance(body, str) else body))
    assert len(outcomes) == 1
    if isinstance(outcomes[0], Refused):
        raise outcomes[0]
    return outcomes[0]


def calls_with(arguments: str) -> str:
    """A ``tool.called`` whose arguments are the given JSON text."""
    return json.dumps(CALL).replace('"arguments": {}', f'"arguments": {arguments}')


def test_an_event_gets_defaults_key_and_digest() -> None:
    event = door.admit(STEP | {"time": None, "org": None}, org="acme", now="2026-01-01T00:00:00+00:00")
    assert (event.org, event.time, event.key, event.seq, event.schemaversion) == (
        "acme", "2026-01-01T00:00:00+00:00", "task/t1", 0, 1,
    )  # fmt: skip
    assert len(event.digest) == 32 and not event.sanitized and event.data == '{"step":"s1"}'


def test_a_run_without_a_task_is_its_own_task() -> None:
    event = door.admit(STEP | {"task": None})
    assert (event.task, event.key) == ("r1", "task/r1")


def test_the_digest_tells_content_from_circumstance() -> None:
    """C13: same id and content is a duplicate whatever the time, the trace and the order of keys; other content not."""
    first = door.admit(CALL | {"data": {"call_id": "c1", "name": "search", "arguments": {"a": 1, "b": 2}}})
    again = door.admit(
        dict(reversed((CALL | {"time": "2027-01-01T00:00:00+08:00", "traceparent": "00-1-2-01"}).items()))
        | {"data": {"arguments": {"b": 2, "a": 1}, "name": "search", "call_id": "c1"}}
    )
    other = door.admit(CALL | {"data": {"call_id": "c1", "name": "delete", "arguments": {"a": 1, "b": 2}}})
    elsewhere = door.admit(CALL | {"task": "t2", "data": {"call_id": "c1", "name": "search", "arguments": {}}})
    assert first.digest == again.digest != other.digest
    assert (first.id, first.key) != (elsewhere.id, elsewhere.key)


@pytest.mark.parametrize("field", ["source", "org", "agent", "user", "session", "task", "run", "causation"])
def test_the_digest_covers_every_name(field: str) -> None:
    assert door.admit(STEP).digest != door.admit(STEP | {field: "another"}).digest


@pytest.mark.parametrize("time", ["2026-03-01T10:00:00", "2026-03-01T10:00:00.5"])
def test_a_naive_time_is_refused_with_the_fix(time: str) -> None:
    """C18."""
    with pytest.raises(Refused, match=f"write {time}Z") as refusal:
        door.admit(STEP | {"time": time})
    assert (refusal.value.code, refusal.value.field) == ("naive_time", "time")


@pytest.mark.parametrize("time", [
    "yesterday", "2026-02-30T10:00:00Z", "2026-03-01", "0001-01-01T00:00:00+14:00", "١", "٢٠٢٦-03-01T10:00:00Z",
    "2026-03-01T10:00:00+14:60", "2026-03-01T10:00:00+24:00", "2026-03-01T10:00:00+0800", "2016-12-31T23:59:60Z",
    "2026-03-01T24:00:00Z", "20260301T100000Z", "2026-03-01T10:00:00.1234567890Z", "2026-03-01T10:00:00Z\n",
])  # fmt: skip
def test_what_is_no_moment_is_refused(time: str) -> None:
    """C18: other notations than RFC 3339, and moments that no calendar or no offset has."""
    with pytest.raises(Refused) as refusal:
        door.admit(STEP | {"time": time})
    assert refusal.value.code == "bad_time"


@pytest.mark.parametrize(
    "time", ["2026-03-01t10:00:00.123456789z", "2026-03-01T10:00:00-00:00", "2024-02-29 00:00:00Z"]
)
def test_a_time_is_kept_as_published(time: str) -> None:
    assert door.admit(STEP | {"time": time}).time == time


def test_nul_is_replaced_in_value_key_and_nested_argument() -> None:
    """C22, as text of the wire."""
    event = only(calls_with(r'{"city\u0000": "weather in \u0000 city", "deep": [{"x": "\u0000"}]}'))
    assert event.sanitized
    assert orjson.loads(event.data)["arguments"] == {
        "city\ufffd": "weather in \ufffd city",
        "deep": [{"x": "\ufffd"}],
    }


def test_nul_is_replaced_in_names_too() -> None:
    """C22."""
    event = door.admit(STEP | {"user": "a\x00b"})
    assert event.sanitized and event.user == "a\ufffdb"


def test_lone_surrogates_are_replaced_and_pairs_kept() -> None:
    """C22."""
    event = only(calls_with(r'{"lone": "\ud83d", "pair": "\ud83d\ude00"}'))
    assert event.sanitized and orjson.loads(event.data)["arguments"] == {"lone": "\ufffd", "pair": "\U0001f600"}
    assert door.admit(CALL | {"data": {"call_id": "c1", "name": "n", "arguments": "\udc80"}}).sanitized


def test_the_literal_text_of_an_escape_survives_byte_for_byte() -> None:
    """C22."""
    event = only(calls_with(r'{"regex": "\\u0000", "null": null}'))
    assert not event.sanitized and event.data.endswith(r'"arguments":{"regex":"\\u0000","null":null}}')


def test_two_keys_that_clean_to_one_are_refused() -> None:
    """C22."""
    with pytest.raises(Refused, match="twice"):
        only(calls_with(r'{"a\u0000": 1, "a\ufffd": 2}'))


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_json_number_is_refused_by_name(token: str) -> None:
    """C23: bare NaN and Infinity; the rest of the batch is unharmed."""
    bad = calls_with('[1, {"p95": TOKEN}]'.replace("TOKEN", token))
    body = f"[{json.dumps(STEP)}, {bad}]"
    stored, refused = door.admit_all(door.read_json(body.encode()))
    assert isinstance(stored, Event) and isinstance(refused, Refused)
    assert (refused.code, refused.field) == ("bad_value", "data.arguments[1].p95")


def test_python_nan_is_refused_even_beside_null() -> None:
    """C23, as importers and reactors might hand it in: orjson alone would write null."""
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(Refused, match="not JSON"):
            door.admit(CALL | {"data": {"call_id": "c1", "name": "n", "arguments": [None, number]}})


@pytest.mark.parametrize("depth", [60, 300, 900, 5000])
def test_deep_nesting_is_refused_alone(depth: int) -> None:
    """C26: 5,000 levels (and fewer) are refused with a clear message; the neighbour in the batch is unharmed."""
    raws = door.read_json(f"[{json.dumps(STEP)}]".encode())
    assert isinstance(door.admit_all(raws)[0], Event)
    nested = calls_with("[" * depth + "]" * depth)
    if depth == 60:
        assert isinstance(only(nested), Event)
    else:
        with pytest.raises(Refused, match="64 levels") as refusal:
            only(nested)
        assert refusal.value.code == "too_deep"


@pytest.mark.parametrize("depth", [200, 5000])
def test_a_deep_item_of_a_batch_harms_no_other(depth: int) -> None:
    """C26."""
    deep = calls_with("[" * depth + '"],{"' + "]" * depth)
    outcomes = door.admit_all(door.read_json(f" [{json.dumps(STEP)} , {deep},{json.dumps(CALL)}]\n".encode()))
    assert [getattr(outcome, "code", "stored") for outcome in outcomes] == ["stored", "too_deep", "stored"]


@pytest.mark.parametrize("body", ["[" * 5000, "[1," + "[" * 5000 + "]", '{"a":' * 5000, "[" * 5000 + "]" * 5000 + "x"])
def test_deep_text_that_is_no_list_is_refused_as_a_whole(body: str) -> None:
    """C26."""
    with pytest.raises(Refused) as refusal:
        door.read_json(body.encode())
    assert refusal.value.code == "too_deep"


@pytest.mark.parametrize(
    ("type_", "data", "field"),
    [
        ("model.responded", {"tokens_in": 2**63 - 1}, "data.tokens_in"),
        ("model.responded", {"cost": 1e308}, "data.cost"),
        ("artifact.created", {"name": "a", "size_bytes": 2**64 - 1}, "data.size_bytes"),
        ("note.written", {"key": "k", "content": 1, "expected_version": 2**63}, "data.expected_version"),
        ("run.started", {"attempt": 2**64 - 1}, "data.attempt"),
        ("settlement.attempted", {"attempt": 2**63}, "data.attempt"),
        ("settlement.recorded", {"version": 2**63, "session_state": {}}, "data.version"),
    ],
)
def test_a_count_that_no_store_could_hold_is_refused(type_: str, data: dict[str, Any], field: str) -> None:
    """C27: counts fit 64 bits, their sums too; else a fold would fail on them, or depend on where batches end."""
    with pytest.raises(Refused) as refusal:
        door.admit(STEP | {"type": type_, "data": data})
    assert (refusal.value.code, refusal.value.field) == ("bad_data", field)


@pytest.mark.parametrize(
    ("type_", "data"),
    [("run.started", {"attempt": "two"}), ("run.started", {"attempt": -1}), ("tool.returned", {"late": "yes"})],
)
def test_what_the_log_reads_is_checked_in_newer_versions_too(type_: str, data: dict[str, Any]) -> None:
    """C12: the log counts attempts before any fold; what it could not count would stop it for everybody."""
    with pytest.raises(Refused, match="in any version") as refusal:
        door.admit(STEP | {"type": type_, "schemaversion": 99, "data": data})
    assert refusal.value.field == f"data.{next(iter(data))}"


def test_brackets_in_text_and_wide_data_are_not_nesting() -> None:
    assert isinstance(only(calls_with(json.dumps(["[" * 500, *([[]] * 500)]))), Event)


@pytest.mark.parametrize(
    "number", ["9999999999999999999999", "18446744073709551616", "-9223372036854775809", "1" * 5000]
)
def test_an_integer_beyond_64_bits_is_refused_with_the_fix(number: str) -> None:
    """C27."""
    with pytest.raises(Refused, match="send it as a string") as refusal:
        only(calls_with(f'{{"order_id": {number}}}'))
    assert refusal.value.field == "data.arguments.order_id"
    if len(number) < 4000:
        with pytest.raises(Refused, match="64 bits"):
            door.admit(CALL | {"data": {"call_id": "c1", "name": "n", "arguments": int(number)}})


@pytest.mark.parametrize("number", ["18446744073709551615", "-9223372036854775808", "9007199254740993"])
def test_an_integer_of_64_bits_round_trips_exactly(number: str) -> None:
    """C27."""
    assert f'"arguments":{number}' in only(calls_with(number)).data


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(Refused, match="'a' stands twice"):
        only(calls_with('{"a": 1, "a": 2}'))
    with pytest.raises(Refused, match="'id' stands twice"):
        only('{"id": "e1", "type": "run.heartbeat", "run": "r1", "id": "e2"}')


def test_a_large_event_is_refused_with_the_limit() -> None:
    """C28: the limit is named; the SDK's head, tail and digest are what to send."""
    big = STEP | {"type": "tool.returned", "data": {"call_id": "c1", "result": "x" * (20 << 20)}}
    with pytest.raises(Refused, match=r"limit is 1,048,576: send head, tail") as refusal:
        door.admit(big)
    assert refusal.value.code == "too_large" and refusal.value.context["limit"] == door.MAX_EVENT_BYTES
    assert door.admit(big, max_bytes=32 << 20).data.startswith('{"call_id"')


@pytest.mark.parametrize("confidence", ["85", "-1", '"0.9"', "null", "NaN"])
@pytest.mark.parametrize("type_", ["memory.proposed", "belief.proposed"])
def test_a_confidence_is_a_number_from_0_to_1(type_: str, confidence: str) -> None:
    """C35: each is refused with its own reason."""
    data = {"belief": "b1", "kind": "learning", "content": "c", "confidence": 0}
    body = json.dumps({"id": "e1", "type": type_, "user": "u1", "agent": "a1", "data": data})
    with pytest.raises(Refused) as refusal:
        only(body.replace('"confidence": 0', f'"confidence": {confidence}'))
    reason = {"85": "<= 1", "-1": ">= 0", '"0.9"': "got `str`", "null": "is null", "NaN": "NaN is not JSON"}[confidence]
    assert reason in str(refusal.value) and refusal.value.field == "data.confidence"


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"id": None}, "bad_field", "id"),
        ({"id": ""}, "missing_field", "id"),
        ({"id": "x" * 129}, "too_long", "id"),
        ({"id": 7}, "bad_field", "id"),
        ({"id": "a\x1fb"}, "bad_field", "id"),
        ({"type": ""}, "missing_field", "type"),
        ({"org": "a\x1fb"}, "bad_field", "org"),
        ({"user": "u" * 257}, "too_long", "user"),
        ({"specversion": "0.3"}, "bad_field", "specversion"),
        ({"colour": "red"}, "unknown_field", "colour"),
        ({"data": [1]}, "bad_field", "data"),
        ({"data": {"step": ""}}, "bad_data", "data.step"),
        ({"data": {}}, "bad_data", "data"),
        ({"seq": 0}, "bad_field", "seq"),
        ({"seq": True}, "bad_field", "seq"),
        ({"seq": 1.5}, "bad_field", "seq"),
        ({"seq": 2**60}, "bad_field", "seq"),
        ({"schemaversion": "1"}, "bad_field", "schemaversion"),
        ({"task": None, "run": None}, "missing_run", "run"),
        ({"type": "belief.retracted", "data": {"belief": "b", "scope": "agent"}}, "missing_scope", "agent"),
        ({"type": "deadletter.discarded", "data": {"projection": "p", "event_id": "e", "partition_key": "partition/x"}},
         "bad_data", "data.partition_key"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(change: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(Refused) as refusal:
        door.admit(STEP | change)
    assert (refusal.value.code, refusal.value.field) == (code, field)
    assert field.split(".")[-1] in str(refusal.value) or code == "bad_data"


def test_a_missing_id_is_named() -> None:
    with pytest.raises(Refused, match="`id` is missing"):
        door.admit({"type": "run.heartbeat", "run": "r1"})


def test_seq_needs_a_run() -> None:
    with pytest.raises(Refused, match="give `run`"):
        door.admit(STEP | {"run": None, "seq": 1})


def test_an_unknown_type_is_stored() -> None:
    """C12: kept by its task, or its scope when it names none."""
    assert door.admit(STEP | {"type": "step.rated", "schemaversion": 3}).key == "task/t1"
    assert door.admit({"id": "e1", "type": "weather.seen", "user": "u1"}).key == "user/u1"


@pytest.mark.parametrize(
    ("type_", "data", "key"),
    [
        ("step.started", {"anything": 1}, "task/t1"),
        ("memory.edited", {"kind": ["new", "form"]}, "user/u1"),
        ("memory.edited", {"kind": "convention"}, "org"),
        ("belief.proposed", {"scope": "team"}, "user/u1"),
        ("deadletter.discarded", {"partition_key": "task/t9"}, "task/t9"),
        ("deadletter.discarded", {"partition_key": {"task": "t9"}}, "user/u1"),
        ("scope.erased", {"partition": 3}, "partition/3"),
        ("scope.erased", {"partition": "all"}, "partition/0"),
    ],
)
def test_a_newer_version_of_a_known_type_is_stored(type_: str, data: dict[str, Any], key: str) -> None:
    """C12: it waits for an upgrade under the key that today's rule gives, whatever its data look like."""
    event = door.admit(STEP | {"type": type_, "user": "u1", "schemaversion": 99, "data": data})
    assert (event.schemaversion, event.key) == (99, key)


def test_a_refused_event_harms_no_other() -> None:
    """C14: nothing of a batch is lost for one bad item."""
    outcomes = door.admit_all([STEP, {"id": "e2"}, 7, STEP | {"id": "e3"}])
    assert [type(outcome) for outcome in outcomes] == [Event, Refused, Refused, Event]


def test_flat_fields_are_read_as_json_is() -> None:
    fields = {name: str(value) for name, value in (STEP | {"seq": 1}).items() if name != "data"}
    event = door.admit(door.read_fields(fields | {"data": '{"step": "s1"}'}))
    assert event == door.admit(STEP | {"seq": 1})


def test_an_empty_field_is_an_absent_one() -> None:
    """As in the log: who fills every field of a form sends empty ones."""
    empty = dict.fromkeys(door.Envelope.__struct_fields__, "")
    event = door.admit(door.read_fields(empty | {"id": "e1", "type": "run.heartbeat", "run": "r1"}), now=STEP["time"])
    assert event == door.admit({"id": "e1", "type": "run.heartbeat", "run": "r1"}, now=STEP["time"])
    with pytest.raises(Refused, match="`id` is missing"):
        door.admit(door.read_fields(empty))


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"seq": "1.0"}, "bad_field", "seq"),
        ({"seq": "-1"}, "bad_field", "seq"),
        ({"schemaversion": "²"}, "bad_field", "schemaversion"),
        ({"data": "{"}, "bad_json", "data"),
        ({"data": '{"step": 1e999}'}, "bad_value", "data.step"),
        ({"data": "[" * 9999}, "too_deep", "data"),
        ({"key": "task/t1"}, "unknown_field", "key"),
    ],
)
def test_bad_flat_fields_are_named(change: dict[str, str], code: str, field: str) -> None:
    fields = {"id": "e1", "type": "step.started", "run": "r1", "data": '{"step": "s1"}'}
    with pytest.raises(Refused) as refusal:
        door.admit(door.read_fields(fields | change))
    assert (refusal.value.code, refusal.value.field) == (code, field)


def test_bytes_that_are_no_utf8_are_replaced_in_fields_and_refused_in_json() -> None:
    """C22: a stream field is bytes of anybody; JSON text is UTF-8 or nothing."""
    text = b'{"step": "\xff"}'.decode(errors="surrogateescape")
    event = door.admit(door.read_fields({"id": "e1", "type": "step.started", "run": "r1", "data": text}))
    assert event.sanitized and event.data == '{"step":"\ufffd"}'
    with pytest.raises(Refused, match="not UTF-8"):
        door.read_json(b'{"id": "\xff"}')


@pytest.mark.parametrize("body", [b"", b"   ", b"{", b"[1, 2", b"nul", b'{"a": 1} x', b"\xef\xbb\xbf{}", b"'a'"])
def test_what_is_no_json_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        door.read_json(body)
    assert refusal.value.code == "bad_json"


@pytest.mark.parametrize("body", ["7", '"text"', "null", "[[]]", "[null]"])
def test_what_is_no_event_is_refused(body: str) -> None:
    with pytest.raises(Refused, match="an event is a JSON object"):
        only(body)


def test_an_empty_batch_holds_nothing() -> None:
    assert door.read_json(b"[]") == []


@pytest.mark.parametrize("type_", ["memory.proposed", "settlement.recorded"])
def test_seq_is_refused_where_it_would_leave_a_hole_in_the_run(type_: str) -> None:
    data = {"content": "x"} if type_ == "memory.proposed" else {"session_state": {}}
    raw = {"id": "1", "type": type_, "user": "u1", "session": "s1", "task": "t1", "run": "r1", "seq": 2, "data": data}
    with pytest.raises(Refused, match="leave `seq` out") as refusal:
        door.admit(raw)
    assert (refusal.value.code, refusal.value.field) == ("bad_field", "seq")
