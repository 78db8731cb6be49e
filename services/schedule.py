"""When beliefs are looked at again: a weekday (or every day) and a time on the clock of a zone. Pure.

A moment of the schedule is a *slot*. A time that the clock of the zone skips in spring, or shows twice in autumn, is
one slot all the same: the skipped one comes as much later as the clock jumped, of two the first counts. So each week
has exactly one slot, and whoever was away at one asks ``latest`` for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_FORM = re.compile(r"(?P<day>[a-z]+) (?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?: (?P<zone>[A-Za-z0-9_+/-]+))?")
_WEEK = 8
"""Days that are looked at around a moment: a week, and one for the zone's offset."""


@dataclass(frozen=True)
class Schedule:
    """A slot each week, on ``weekday`` (0: Monday), or each day where that is None."""

    weekday: int | None
    at: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str) -> Schedule | None:
        """Of ``sunday 03:00 Europe/Berlin`` or ``daily 03:00``, in UTC where no zone is named; None for ``off``.

        Raises ValueError, which says what it should be like.

        >>> Schedule.parse("sunday 03:00 Europe/Berlin").latest(datetime(2026, 3, 29, 12, tzinfo=UTC)).isoformat()
        '2026-03-29T01:00:00+00:00'
        """
        if text == "off":
            return None
        found = _FORM.fullmatch(text)
        if found is None or found["day"] not in (*DAYS, "daily"):
            raise ValueError("like `sunday 03:00 Europe/Berlin`, `daily 03:00` (UTC where no zone is named), or `off`")
        weekday = None if found["day"] == "daily" else DAYS.index(found["day"])
        return cls(weekday, time(int(found["hour"]), int(found["minute"])), _zone(found["zone"] or "UTC"))

    def latest(self, now: datetime) -> datetime:
        """The last slot that is not after ``now``, in UTC."""
        return max(slot for slot in self._around(now) if slot <= now)

    def following(self, now: datetime) -> datetime:
        """The first slot after ``now``, in UTC."""
        return min(slot for slot in self._around(now) if slot > now)

    def _around(self, now: datetime) -> list[datetime]:
        today = now.astimezone(self.zone).date()
        days = (today + timedelta(days=n) for n in range(-_WEEK, _WEEK + 1))
        # fold=0: a skipped time is read with the offset before the jump, of two the first is taken
        return [
            datetime.combine(day, self.at, self.zone).astimezone(UTC)
            for day in days
            if self.weekday in (None, day.weekday())
        ]


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"a time in a zone that this machine knows, like Europe/Berlin; it knows no {name}") from error
