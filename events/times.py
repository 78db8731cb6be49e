"""Event times: RFC 3339 with an offset, compared by instant where an order is needed at read time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from events.errors import Refused

_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?P<offset>[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII
)


def check_time(text: str) -> str:
    """The time as given, when it is RFC 3339 with an offset. Raises Refused, with the fix, when it is not."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise Refused(
            f"`time` is {text[:40]!r}, not RFC 3339: write 2026-03-01T10:00:00Z", code="bad_time", field="time"
        )
    if match["offset"] is None:
        raise Refused(f"`time` {text} has no offset: write {text}Z if it is UTC", code="naive_time", field="time")
    try:
        instant(text)
    except (ValueError, OverflowError) as error:
        raise Refused(f"`time` {text} is no moment: {error}", code="bad_time", field="time") from error
    return text


def instant(text: str) -> datetime:
    """The UTC moment of a checked time, to the microsecond."""
    return datetime.fromisoformat(text.upper()).astimezone(UTC)


def written(moment: datetime) -> str:
    """A moment as RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
