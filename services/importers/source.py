"""Reading source files: whatever encoding and JSON they come in, without a value changing unnoticed."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from events import strict_json
from events.errors import Refused

MAX_DEPTH = 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(raw: bytes) -> str:
    """Text of a file: UTF-8, or what its byte order mark says. A byte that is no text becomes a lone surrogate.

    The door turns lone surrogates into U+FFFD and marks the event as sanitised, so the damage stays visible.
    """
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
    return raw.decode("utf-8", "surrogateescape")


def parse(text: str) -> Any:
    """One JSON document. Integers beyond 64 bits come back as text, NaN and infinities as null.

    Raises Refused when it is no JSON, nests too deep, or has a key twice in one object.
    """
    if strict_json.deeper_than(MAX_DEPTH, text.encode("utf-8", "surrogatepass")):
        raise Refused(f"nesting is deeper than {MAX_DEPTH} levels", code="too_deep")
    try:
        return json.loads(
            text, strict=False, object_pairs_hook=_object, parse_int=_integer, parse_constant=lambda _: None
        )
    except json.JSONDecodeError as error:
        raise Refused(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", code="bad_json") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Refused("a key stands twice in one object", code="bad_json")
    return value


def _integer(text: str) -> int | str:
    return int(text) if len(text) < 19 else text


def documents(text: str) -> Iterator[tuple[int, Any]]:
    """The JSON documents of a text: one, or one a line. Numbered from 1.

    Raises Refused, naming the line, when the text is neither.
    """
    try:
        whole = parse(text)
    except Refused as refusal:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise
        for number, line in lines:
            try:
                yield number, parse(line)
            except Refused as bad_line:
                raise (refusal if number == lines[0][0] else Refused(f"line {number}: {bad_line}")) from bad_line
    else:
        yield 1, whole


def json_or_text(value: Any) -> Any:
    """JSON text as its value; any other text, and text whose value no event may hold, as it is."""
    if not isinstance(value, str):
        return value
    try:
        parsed = strict_json.loads(value.encode("utf-8", "surrogatepass"))
        strict_json.sanitise(parsed)
    except Refused:
        return value
    return parsed


def digest(*parts: Any) -> str:
    """Content digest of JSON values: 32 hex characters, the same for equal values."""
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=16).hexdigest()


def text_of(content: Any) -> str:
    """The text of a message's content: itself, or its text parts joined by blank lines."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    parts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    return "\n\n".join(part for part in parts if isinstance(part, str))


def moment(value: Any) -> datetime | None:
    """A source's time: epoch seconds or milliseconds, or ISO 8601 text (UTC when it has no offset); else None."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def number(value: Any) -> float:
    """A number as a float; anything else is 0."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def count(value: Any) -> int:
    """A count, never negative; anything else is 0."""
    return max(0, int(number(value)))
