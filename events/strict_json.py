"""JSON as the door reads it: every hazard has one defined answer (DESIGN 3).

Reading (``loads``, ``loads_many``): orjson turns integers beyond 64 bits into floats and keeps the last of two equal
keys, so its answer is taken only for text that comes back the same to the byte when it is written again (whitespace
apart): either hazard would change it. All other text goes through the standard library's parser, whose hooks see every
token.

Judging (``sanitise``): the same rules for values that came as text and values that Python code hands in.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec
import orjson

from events.errors import Refused

MAX_DEPTH = 64
REPLACEMENT = "\ufffd"
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_MARK = re.compile(_STRING.pattern + rb"|[\[\]{},]", re.DOTALL)
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_TOO_DEEP = f"nesting is deeper than {MAX_DEPTH} levels: flatten the data"
# what orjson would write without a word, and other Python code could not read back
_PASS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class Hazard:
    """Stands in a parsed document where something was found that no event may hold; ``sanitise`` refuses it."""

    __slots__ = ("code", "message")

    def __init__(self, message: str, code: str = "bad_value") -> None:
        self.message = message
        self.code = code


# --- reading ---------------------------------------------------------------------------------------------------------


def loads(raw: bytes) -> Any:
    """Parse one JSON document; what cannot be accepted stands in it as a ``Hazard``.

    Raises Refused (``bad_json``, ``too_deep``) when the text as a whole cannot be read.
    """
    value = _loads_exactly(raw)
    return _loads_slowly(raw) if value is _DOUBTFUL else value


def loads_many(raw: bytes) -> list[Any]:
    """Parse one JSON value, or an array of them, into a list. An item that cannot be read is a ``Hazard`` in its place.

    Raises Refused (``bad_json``, ``too_deep``) when not even the items can be told apart.
    """
    value = _loads_exactly(raw)
    if value is _DOUBTFUL:
        try:
            return [_loads_item(bytes(item)) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])]
        except msgspec.DecodeError:
            value = _loads_slowly(raw)  # one item, or broken: this tells where
        except RecursionError:
            return [_loads_item(item) for item in _items(raw)] or [_loads_slowly(raw)]
    return value if isinstance(value, list) else [value]


_DOUBTFUL = object()


def _loads_exactly(raw: bytes) -> Any:
    try:
        value = orjson.loads(raw)
        if orjson.dumps(value) == raw:
            return value
        compact = msgspec.json.format(raw, indent=-1)
        same = compact == (_dumps_escaped(value) if b"\\u" in raw else orjson.dumps(value))
        return value if same else _DOUBTFUL
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, msgspec.DecodeError, RecursionError):
        return _DOUBTFUL


def _dumps_escaped(value: Any) -> bytes:
    """As Python's ``json.dumps`` writes by default, which is what many a publisher calls."""
    return json.dumps(value, separators=(",", ":")).encode()


def _loads_item(raw: bytes) -> Any:
    try:
        return loads(raw)
    except Refused as refusal:
        return Hazard(str(refusal), refusal.code)


def _items(raw: bytes) -> list[bytes]:
    """The items of an array, however deep they nest; none when the text is no array from end to end."""
    cuts, depth, end = list[int](), 0, 0
    for mark in _MARK.finditer(raw):
        step = _STEP.get(mark[0][0], 0)
        depth += step
        if depth == 0 or (depth == 1 and (step == 1 or mark[0] == b",")):
            cuts.append(mark.end())
        if depth == 0:
            end = mark.end()
            break
    whole = raw.lstrip().startswith(b"[") and end > 0 and not raw[end:].strip()
    return [raw[start : stop - 1] for start, stop in pairwise(cuts)] if whole else []


def _loads_slowly(raw: bytes) -> Any:
    # two levels are the batch and the envelope; ``sanitise`` counts exactly
    if deeper_than(MAX_DEPTH + 2, raw):
        raise Refused(_TOO_DEEP, code="too_deep")
    try:
        # surrogatepass: a UTF-8 encoded lone surrogate is read, and replaced by ``sanitise``
        text = raw.decode("utf-8", "surrogatepass")
        return json.loads(
            text,
            strict=False,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}: {error.reason}", code="bad_json") from error
    except json.JSONDecodeError as error:
        raise Refused(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", code="bad_json") from error


def deeper_than(limit: int, raw: bytes) -> bool:
    """Whether the brackets of a JSON text, those within strings apart, nest deeper than ``limit``."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limit


def _object(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        return Hazard(f"the key {twice!r} stands twice in one object")
    return value


def _integer(text: str) -> Any:
    # 21 characters hold every 64-bit integer, and Python refuses to convert very long ones
    if len(text) > 21 or not _INT64_MIN <= int(text) <= _UINT64_MAX:
        return Hazard(f"the integer {text[:40]} does not fit 64 bits: send it as a string")
    return int(text)


def _float(text: str) -> Any:
    value = float(text)
    return value if isfinite(value) else Hazard(f"the number {text[:40]} does not fit a float: send it as a string")


def _constant(text: str) -> Hazard:
    return Hazard(f"{text} is not JSON: send null, or leave the field out")


# --- judging ---------------------------------------------------------------------------------------------------------


def sanitise(value: Any) -> tuple[Any, bool]:
    """The value as it may be stored, and whether anything in it had to be replaced.

    NUL and lone surrogates become U+FFFD, in keys too; a value without them comes back as it is, not copied. Raises
    Refused, naming the place, for a Hazard, a NaN or infinity, an integer beyond 64 bits, a key that is no text, a
    value that is no JSON, and for data (one level down in an event) that nest deeper than MAX_DEPTH.
    """
    if _certainly_safe(value) or not _judge(value, 0):
        return value, False
    return _replace(value), True


def _certainly_safe(value: Any) -> bool:
    """A test at C speed, on the written form; false alarms are allowed."""
    try:
        text = orjson.dumps(value, option=_PASS)
        if b"\\u0000" in text or text.count(b"{") + text.count(b"[") > MAX_DEPTH:
            return False
        # orjson writes NaN and infinity as null; MessagePack writes them as floats with an exponent of all ones
        packed = msgspec.msgpack.encode(value) if b"null" in text else b""
        return b"\xcb\x7f" not in packed and b"\xcb\xff" not in packed
    except (TypeError, OverflowError, RecursionError):  # orjson's and msgspec's ways to say that it cannot be written
        return False


def _judge(value: Any, depth: int) -> bool:
    """Whether a value holds text to replace. Raises Refused with the path of what it may not hold."""
    if isinstance(value, str):
        return not (value.isascii() and "\x00" not in value) and _UNSAFE.search(value) is not None
    if value is None or isinstance(value, (bool, UUID)):
        return False
    if isinstance(value, Enum):
        return _judge(value.value, depth)
    if not isinstance(value, (dict, list)) and type(value) is not tuple:
        return _judge_number(value)
    if depth > MAX_DEPTH:
        raise Refused(_TOO_DEEP, code="too_deep")
    unsafe = False
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        try:
            unsafe |= _judge(item, depth + 1)
            if isinstance(value, dict):
                unsafe |= _judge_key(step)
        except Refused as refusal:
            refusal.field = _path(step, refusal.field)
            raise
    return unsafe


def _path(step: str | int, rest: str) -> str:
    """``a`` and ``b[2]`` make ``a.b[2]``; 3 and ``b`` make ``[3].b``."""
    head = f"[{step}]" if isinstance(step, int) else clean_text(str(step))
    return f"{head}{rest if not rest or rest.startswith('[') else '.' + rest}"[:200]


def _judge_key(key: Any) -> bool:
    if type(key) is str:
        return _UNSAFE.search(key) is not None
    raise Refused(f"the key {key!r:.40} is no text", code="bad_value")


def _judge_number(value: Any) -> bool:
    if isinstance(value, Hazard):
        raise Refused(value.message, code=value.code)
    if isinstance(value, int):
        if _INT64_MIN <= value <= _UINT64_MAX:
            return False
        digits = str(value)[:40] if value.bit_length() < 4096 else "given"
        raise Refused(f"the integer {digits} does not fit 64 bits: send it as a string", code="bad_value")
    if type(value) is float:
        if isfinite(value):
            return False
        raise Refused(f"{value} is not JSON: send null, or leave the field out", code="bad_value")
    raise Refused(f"a {type(value).__name__} is not JSON", code="bad_value")


def clean_text(text: str) -> str:
    """Text with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSAFE.sub(REPLACEMENT, text)


def _replace(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (list, tuple)):
        return [_replace(item) for item in value]
    if isinstance(value, Enum):
        return _replace(value.value)
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        safe = clean_text(key)
        if safe in result:
            raise Refused(f"the key {safe!r} stands twice in one object once cleaned", code="bad_value", field=safe)
        result[safe] = _replace(item)
    return result
