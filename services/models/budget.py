"""What each org has spent on models today (UTC), as far as this process knows, and whether it may spend more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime

from services.models.routes import Routes


def today() -> date:
    """The day in UTC."""
    return datetime.now(UTC).date()


class Budget:
    """Tokens spent by org and day. Each process counts its own; ``day`` tells which day it is."""

    def __init__(self, routes: Routes, day: Callable[[], date] = today) -> None:
        self._routes = routes
        self._day = day
        self._today = day()
        self._spent: dict[str, int] = defaultdict(int)

    def left(self, org: str) -> int | None:
        """Tokens that the org may still spend today, never less than 0; None: there is no limit."""
        self._turn()
        limit = self._routes.budget(org)
        return None if limit is None else max(0, limit - self._spent[org])

    def spend(self, org: str, tokens: int) -> None:
        """The org spent tokens."""
        self._turn()
        self._spent[org] += tokens

    def _turn(self) -> None:
        if (day := self._day()) != self._today:
            self._today = day
            self._spent.clear()
