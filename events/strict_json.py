"""JSON as the door reads it: every hazard has one defined answer (DESIGN 3).

orjson alone turns integers beyond 64 bits into floats, keeps the last of two equal keys, refuses lone surrogates and
stops at a nesting of 1024. The fast path here uses it all the same, and only for text that it reproduces to the byte:
such text has no duplicate key and no large integer, since either would come back changed. All other text takes the
slow path through the standard library's parser, whose hooks see every token.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from events.errors import Refused

MAX_DEPTH = 64
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_UNSAFE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


class Hazard:
    """Stands in a parsed document where something was found that cannot be accepted."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


def loads(raw: bytes) -> Any:
    """Parse one JSON document; values that no event may hold come back as ``Hazard`` objects for ``clean`` to name.

    Raises Refused (``bad_json``, ``too_deep``) when the text as a whole cannot be read.
    """
    depth_check(raw)
    try:
        value = orjson.loads(raw)
        if orjson.dumps(value) == raw:
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # the slow path tells what it is
    return _loads_slowly(raw)


def depth_check(raw: bytes, limit: int = MAX_DEPTH + 2) -> None:
    """Raise Refused when brackets nest deeper than ``limit`` (two levels are the batch and the envelope)."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return
    depth = 0
    for byte in _STRING.sub(b"", raw):
        if byte in b"[{":
            depth += 1
            if depth > limit:
                raise Refused(f"nesting is deeper than {MAX_DEPTH} levels: flatten the data", code="too_deep")
        elif byte in b"]}":
            depth -= 1


def _loads_slowly(raw: bytes) -> Any:
    try:
        # surrogatepass: a UTF-8 encoded lone surrogate is read, and replaced by ``clean``
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}: {error.reason}", code="bad_json") from error
    try:
        return json.loads(
            text,
            strict=False,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise Refused(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", code="bad_json") from error


def _object(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        return Hazard(f"the key {twice!r} stands twice in one object")
    return value


def _integer(text: str) -> Any:
    if len(text) < 18:
        return int(text)
    # more than 20 digits cannot fit, and Python refuses to convert very long ones
    if len(text) > 21 or not _INT64_MIN <= int(text) <= _UINT64_MAX:
        return Hazard(f"the integer {text[:40]} does not fit 64 bits: send it as a string")
    return int(text)


def _float(text: str) -> Any:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return Hazard(f"the number {text[:40]} does not fit a float: send it as a string")
    return value


def _constant(text: str) -> Hazard:
    return Hazard(f"{text} is not JSON: send null, or leave the field out")


def clean_text(text: str) -> str:
    """Text with NUL and lone surrogates replaced by U+FFFD."""
    return _UNSAFE.sub(REPLACEMENT, text)


def clean(value: Any, path: str = "", depth: int = 0) -> Any:
    """A copy of a parsed value that is safe to store: NUL and lone surrogates are U+FFFD, in keys too.

    Accepts whatever Python's own code hands in as well as what ``loads`` gives. Raises Refused, naming the path, for a
    Hazard, a NaN or infinity, an integer beyond 64 bits, a key that is no text, a value that is no JSON, and for
    nesting deeper than MAX_DEPTH.
    """
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if depth > MAX_DEPTH:
        raise Refused(f"nesting is deeper than {MAX_DEPTH} levels: flatten the data", code="too_deep", field=path[:200])
    if isinstance(value, dict):
        return _clean_object(value, path, depth)
    if isinstance(value, (list, tuple)):
        return [clean(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Hazard):
        raise Refused(value.message, code="bad_value", field=path)
    return _clean_number(value, path)


def _clean_object(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise Refused(f"the key {key!r} is no text", code="bad_value", field=path)
        safe = clean_text(key)
        if safe in result:
            raise Refused(f"the key {safe!r} stands twice in one object once cleaned", code="bad_value", field=path)
        result[safe] = clean(item, f"{path}.{safe}" if path else safe, depth + 1)
    return result


def _clean_number(value: Any, path: str) -> int | float:
    if isinstance(value, int):
        if not _INT64_MIN <= value <= _UINT64_MAX:
            raise Refused(
                f"the integer {str(value)[:40] if value.bit_length() < 4096 else 'given'} does not fit 64 bits: send it as a string",
                code="bad_value",
                field=path,
            )
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise Refused(f"{value} is not JSON: send null, or leave the field out", code="bad_value", field=path)
        return value
    raise Refused(f"a {type(value).__name__} is not JSON", code="bad_value", field=path)
